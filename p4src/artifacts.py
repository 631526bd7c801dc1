"""The compiled P4 program: where its artefacts are, and whether they belong to the sources beside them.

The artefacts are committed so that nobody needs p4c to run the program. ``build/SOURCES.sha256``, in the
format of sha256sum(1), holds the digests of the P4 sources and of the artefacts compiled from them, and
in a comment the compiler's version.
"""

import hashlib
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
PROGRAM = "netreduce.p4"
JSON = "build/netreduce.json"
P4INFO = "build/netreduce.p4info.txtpb"
DIGESTS = "build/SOURCES.sha256"
COMPILED_BY = "# compiled by "


def bmv2_json() -> Path:
    """The program in BMv2's JSON format.

    Raises:
        FileNotFoundError: the package has no compiled program.
    """
    return _existing(JSON)


def p4info() -> Path:
    """The program's P4Info, a ``p4.config.v1.P4Info`` message in protobuf text format.

    Raises:
        FileNotFoundError: the package has no compiled program.
    """
    return _existing(P4INFO)


def sources(root: Path = PACKAGE) -> list[str]:
    """The P4 sources, as sorted paths relative to ``root``."""
    found = [root / PROGRAM, *(root / "include").glob("*.p4")]
    return sorted(path.relative_to(root).as_posix() for path in found)


def digests(root: Path = PACKAGE) -> str:
    """What ``SOURCES.sha256`` must hold for the files that are there now."""
    lines = []
    for name in [*sources(root), JSON, P4INFO]:
        path = root / name
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "missing"
        lines.append(f"{digest}  {name}\n")
    return "".join(lines)


def compiled_by(root: Path = PACKAGE) -> str:
    """The compiler and its version, as ``SOURCES.sha256`` says.

    Raises:
        FileNotFoundError: there is no such file.
    """
    return (root / DIGESTS).read_text().splitlines()[0].removeprefix(COMPILED_BY)


def stale(root: Path = PACKAGE) -> list[str]:
    """The files that were added, removed or changed since the artefacts were compiled; empty if none."""
    path = root / DIGESTS
    then = _parse(path.read_text()) if path.exists() else {}
    now = _parse(digests(root))
    return sorted(name for name in then.keys() | now.keys() if then.get(name) != now.get(name))


def _parse(text: str) -> dict[str, str]:
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def _existing(name: str) -> Path:
    path = PACKAGE / name
    if not path.exists():
        raise FileNotFoundError(f"the compiled P4 program {path} is missing: run `make p4` (needs p4c)")
    return path
