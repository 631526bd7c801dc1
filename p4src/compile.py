"""Compiles the P4 program: ``python -m netreduce.p4.compile`` (``make p4``).

Writes BMv2 JSON, P4Info and the digests of sources and artefacts into ``p4src/build/``. The same sources
give the same bytes on every machine with the same compiler: no path of the machine is left in them.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from netreduce.p4 import artifacts

COMPILER = "p4c-bm2-ss"


class CompileError(Exception):
    """The program does not compile, or not without warnings; the message is the compiler's."""


def compiler_version() -> str:
    """Name and version of the compiler on PATH, such as ``p4c-bm2-ss 1.2.5.16``.

    Raises:
        FileNotFoundError: there is none.
    """
    done = subprocess.run([_compiler(), "--version"], capture_output=True, text=True, check=True)
    version = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return f"{COMPILER} {version.group() if version else 'of unknown version'}"


def _compiler() -> str:
    path = shutil.which(COMPILER)
    if path is None:
        raise FileNotFoundError(f"{COMPILER} is not on PATH: install p4c, see https://github.com/p4lang/p4c")
    return path


def compile_program(root: Path, output: Path) -> None:
    """Compiles ``root/netreduce.p4`` into the artefacts below ``output`` (which need not exist).

    Raises:
        FileNotFoundError: the compiler is not on PATH.
        CompileError: it printed an error or a warning.
    """
    compiler = _compiler()
    (output / artifacts.JSON).parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        program, p4info = Path(folder, "program.json"), Path(folder, "p4info.txtpb")
        command = [compiler, "--arch", "v1model", "--std", "p4-16", "--Werror"]
        command += ["-o", str(program), "--p4runtime-files", str(p4info), artifacts.PROGRAM]
        # Run in the folder of the sources, so that the compiler knows them by their relative names.
        done = subprocess.run(command, cwd=root, capture_output=True, text=True)
        complaint = (done.stdout + done.stderr).strip()
        if done.returncode != 0 or complaint:
            raise CompileError(complaint or f"{COMPILER} ended with status {done.returncode}")
        (output / artifacts.JSON).write_text(_portable_json(program.read_text(), root))
        (output / artifacts.P4INFO).write_text(_portable(p4info.read_text(), root))


def _portable(text: str, root: Path) -> str:
    return text.replace(f"{root.resolve()}/", "")


def _portable_json(text: str, root: Path) -> str:
    """The program with relative source names, and with its innermost lists and objects on one line each."""
    program = json.loads(text)
    program["program"] = artifacts.PROGRAM
    return _portable(_join_leaves(json.dumps(program, indent=1)) + "\n", root)


def _join_leaves(text: str) -> str:
    """Joins every list or object that contains no other, up to a line's length."""

    def join(match: re.Match[str]) -> str:
        line = re.sub(r"\n\s*", " ", match.group())
        return line if len(line) <= 160 else match.group()

    return re.sub(r"[\[{]\n[^\[\]{}]*\n\s*[\]}]", join, text)


def main() -> int:
    try:
        compile_program(artifacts.PACKAGE, artifacts.PACKAGE)
    except (FileNotFoundError, CompileError) as error:
        print(f"netreduce: {error}", file=sys.stderr)
        return 1
    head = f"{artifacts.COMPILED_BY}{compiler_version()}\n"
    (artifacts.PACKAGE / artifacts.DIGESTS).write_text(head + artifacts.digests())
    for name in (artifacts.JSON, artifacts.P4INFO):
        print(f"wrote p4src/{name} ({(artifacts.PACKAGE / name).stat().st_size} bytes)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
