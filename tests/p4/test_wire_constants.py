"""The generated wire constants are those of ``p4src/wire.py``."""

import subprocess
from pathlib import Path

import pytest

from netreduce.p4 import generate, wire


@pytest.mark.parametrize("path", [generate.P4_FILE, generate.CPP_FILE], ids=lambda path: path.name)
def test_generated_file_is_current(path: Path) -> None:
    assert path.read_text() == generate.renderings()[path], f"{path} is stale: run `make wire`"


def test_rendering_follows_a_changed_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    before = generate.renderings()
    monkeypatch.setattr(wire, "UDP_PORT_FIRST", wire.UDP_PORT_FIRST + 1)
    after = generate.renderings()
    assert all(before[path] != after[path] for path in before)


def test_nr_layout_is_the_16_byte_header_of_the_protocol() -> None:
    assert wire.NR_HEADER_BYTES == 16
    assert generate.nr_offsets()["k"] == 8
    assert generate.nr_offsets()["kind"] == generate.nr_offsets()["version"] == 2


def test_cpp_header_compiles_alone(tmp_path: Path) -> None:
    source = tmp_path / "use.cc"
    source.write_text(
        f'#include "{generate.CPP_FILE}"\n'
        "using namespace netreduce::wire;\n"
        f"static_assert(NR_MAGIC == {wire.NR_MAGIC} && NR_K_OFFSET == 8);\n"
        f"static_assert(static_cast<int>(Cause::UNKNOWN) == {wire.Cause.UNKNOWN.value});\n"
    )
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_the_program_takes_for_granted() -> None:
    """A slot number is confined by a mask, a cause is half a byte of its cell's number."""
    assert wire.SLOT_COUNT & (wire.SLOT_COUNT - 1) == 0
    assert max(wire.Cause) < wire.CAUSE_STRIDE == 1 << generate.P4_ENUM_WIDTHS[wire.Cause]
    assert wire.MAX_STREAMS == 1 << 8 and wire.MAX_RANKS == 64
    assert max(wire.BLOCK_COUNTS) == wire.MAX_BLOCKS
