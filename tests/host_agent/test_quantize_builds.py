"""Ranks may run builds for different processors: all must round alike."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
CSRC = ROOT / "host_agent" / "csrc"
SOURCES = [
    CSRC / "datapath" / f"{name}.cc" for name in ("kernels", "fixed_point", "checksum", "layout", "types")
]


def digest(folder: Path, *flags: str) -> str:
    program = folder / f"digest{len(list(folder.iterdir()))}"
    command = ["g++", "-std=c++17", "-ffp-contract=off", *flags, f"-I{CSRC}", "-o", str(program)]
    command += [str(Path(__file__).parent / "programs" / "kernel_digest.cc"), *map(str, SOURCES)]
    subprocess.run(command, check=True)
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout


def test_scalar_and_vectorised_builds_agree_bitwise(tmp_path: Path) -> None:
    vectorised = digest(tmp_path, "-O3", "-march=native", "-fno-trapping-math")
    scalar = digest(tmp_path, "-O1", "-fno-tree-vectorize")
    assert vectorised == scalar
