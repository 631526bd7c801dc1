"""Records or replays the golden traces; run in the folder ``tests``, as root, with BMv2 on PATH.

    python -m goldens.record --refresh      record all traces anew on BMv2
    python -m goldens.record                replay them on BMv2: does it still do the same?
    python -m goldens.record softswitch     replay them on the embedded switch
"""

import argparse
import subprocess
import sys

from goldens.scripts import SCRIPTS
from goldens.trace import DATA, record, replay
from packets.targets import Bmv2, Softswitch


def bmv2_version() -> str:
    done = subprocess.run(["simple_switch_grpc", "--version"], capture_output=True, text=True, check=True)
    return f"BMv2 {done.stdout.strip()}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", nargs="?", choices=["bmv2", "softswitch"], default="bmv2")
    parser.add_argument("--refresh", action="store_true", help="record on BMv2 instead of replaying")
    arguments = parser.parse_args()
    if arguments.refresh and arguments.target != "bmv2":
        parser.error("goldens are what BMv2 does: --refresh is for bmv2 only")
    if arguments.target == "bmv2" and (reason := Bmv2.missing()):
        parser.error(reason)

    failures = 0
    with Bmv2() if arguments.target == "bmv2" else Softswitch() as target:
        if arguments.refresh:
            DATA.mkdir(exist_ok=True)
            for old in DATA.glob("*.jsonl"):
                old.unlink()
            version = bmv2_version()
            for name, script in SCRIPTS.items():
                record(DATA / f"{name}.jsonl", script(), target, version)
                print(f"recorded {name}")
            return 0
        for path in sorted(DATA.glob("*.jsonl")):
            try:
                replay(path, target)
                print(f"same: {path.stem}")
            except AssertionError as error:
                failures += 1
                print(f"differs: {error}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
