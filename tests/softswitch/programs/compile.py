"""Recompiles the P4 programs beside this file: ``python tests/softswitch/programs/compile.py``.

Needs p4c on PATH.  The artefacts name no folder of the machine.
"""

import json
import subprocess
from pathlib import Path

HERE = Path(__file__).parent


def compile_program(source: Path, folder: Path) -> None:
    """Writes ``NAME.json`` and ``NAME.p4info.txtpb`` into ``folder``."""
    program = folder / f"{source.stem}.json"
    p4info = folder / f"{source.stem}.p4info.txtpb"
    command = ["p4c-bm2-ss", "--arch", "v1model", "--std", "p4-16", "--Werror"]
    command += ["-o", str(program), "--p4runtime-files", str(p4info), source.name]
    subprocess.run(command, cwd=source.parent, check=True)
    content = json.loads(program.read_text())
    content["program"] = source.name
    program.write_text(json.dumps(content, indent=1).replace(f"{source.parent.resolve()}/", "") + "\n")


if __name__ == "__main__":
    for source in sorted(HERE.glob("*.p4")):
        compile_program(source, HERE)
