"""The committed artefacts are those of the committed P4 sources."""

import json
import re
import shutil
from pathlib import Path

import pytest
from finsy.proto import p4i
from google.protobuf import text_format

from netreduce.p4 import artifacts, compile


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the sources and artefacts that a test may spoil."""
    root = tmp_path / "p4src"
    for name in [*artifacts.sources(), artifacts.JSON, artifacts.P4INFO, artifacts.DIGESTS]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(artifacts.PACKAGE / name, root / name)
    return root


def test_artefacts_are_current() -> None:
    assert artifacts.stale() == [], "the P4 program changed since it was compiled: run `make p4`"


@pytest.mark.parametrize("name", [*artifacts.sources(), artifacts.JSON, artifacts.P4INFO])
def test_one_changed_character_is_noticed(copy: Path, name: str) -> None:
    text = (copy / name).read_text()
    position = len(text) // 2
    (copy / name).write_text(text[:position] + chr(ord(text[position]) ^ 1) + text[position + 1 :])
    assert artifacts.stale(copy) == [name]


def test_the_compiler_is_recorded() -> None:
    assert re.fullmatch(r"p4c-bm2-ss \d+(\.\d+)+", artifacts.compiled_by())


def test_added_and_removed_files_are_noticed(copy: Path) -> None:
    (copy / "include/extra.p4").write_text("// new\n")
    (copy / "include/sizes.p4").unlink()
    (copy / artifacts.JSON).unlink()
    assert artifacts.stale(copy) == sorted([artifacts.JSON, "include/extra.p4", "include/sizes.p4"])


def test_missing_digests_make_everything_stale(copy: Path) -> None:
    (copy / artifacts.DIGESTS).unlink()
    assert artifacts.stale(copy) == sorted([*artifacts.sources(), artifacts.JSON, artifacts.P4INFO])


def test_every_include_of_the_program_is_among_the_sources() -> None:
    listed = set(artifacts.sources())
    for name in listed:
        folder = Path(name).parent
        for include in re.findall(r'#include "(.*)"', (artifacts.PACKAGE / name).read_text()):
            assert (folder / include).as_posix() in listed, f"{name} includes {include}"


@pytest.mark.parametrize("path", [artifacts.bmv2_json(), artifacts.p4info()], ids=lambda path: path.name)
def test_no_machine_path_in_artefacts(path: Path) -> None:
    text = path.read_text()
    for prefix in ("/home/", "/root/", "/tmp/", "/usr/", "/opt/", str(artifacts.PACKAGE.parent)):
        assert prefix not in text


def test_source_names_in_json_are_relative_and_exist() -> None:
    program = json.loads(artifacts.bmv2_json().read_text())
    tables = [table for pipeline in program["pipelines"] for table in pipeline["tables"]]
    names = {table["source_info"]["filename"] for table in tables if "source_info" in table}
    assert "include/slots.p4" in names and all((artifacts.PACKAGE / name).is_file() for name in names)
    assert program["program"] == artifacts.PROGRAM


def test_p4info_has_the_documented_interface() -> None:
    """The names and widths of docs/architecture.md, which the controller writes by."""
    info = text_format.Parse(artifacts.p4info().read_text(), p4i.P4Info())
    actions = {
        action.preamble.alias: [(param.name, param.bitwidth) for param in action.params]
        for action in info.actions
    }
    tables = {
        table.preamble.alias: [(field.name, field.bitwidth) for field in table.match_fields]
        for table in info.tables
    }
    assert info.pkg_info.name == "netreduce"
    assert tables == {
        "connection": [("job", 16), ("rank", 8)],
        "forward": [("destination", 48)],
        "rewrite": [("stream", 16), ("rank", 16)],
    }
    assert actions["contribute"] == [
        ("port", 9),
        ("source", 32),
        ("stream", 16),
        ("generation", 32),
        ("slot_base", 16),
        ("slot_mask", 16),
        ("rank_bit", 64),
        ("full", 64),
        ("ranks", 16),
        ("lane_mask", 2048),
        ("group", 16),
    ]
    assert actions["as_predecessor"] == [
        ("source_mac", 48),
        ("destination_mac", 48),
        ("source_ip", 32),
        ("destination_ip", 32),
        ("source_port", 16),
        ("destination_port", 16),
        ("predecessor", 8),
    ]
    assert actions["to_port"] == [("port", 9)] and actions["flood"] == [("group", 16)]
    assert actions["drop"] == [] and actions["no_connection"] == []
    assert [counter.preamble.alias for counter in info.counters] == ["causes"]
    assert [counter.preamble.alias for counter in info.direct_counters] == ["delivered"]


def test_json_layout_keeps_the_content() -> None:
    value = {"a": [1, [2, {"b": "x[\n]{"}]], "c": {"d": []}, "e": ["[", "]"], "f": ["y" * 200, 1]}
    assert json.loads(compile._join_leaves(json.dumps(value, indent=1))) == value


@pytest.mark.p4c
class TestWithCompiler:
    def test_recompiling_elsewhere_gives_the_committed_artefacts(self, copy: Path, tmp_path: Path) -> None:
        if compile.compiler_version() != artifacts.compiled_by():
            pytest.skip(f"compiled by {artifacts.compiled_by()}; here is {compile.compiler_version()}")
        compile.compile_program(copy, tmp_path / "out")
        for name in (artifacts.JSON, artifacts.P4INFO):
            assert (tmp_path / "out" / name).read_text() == (artifacts.PACKAGE / name).read_text(), name

    def test_a_warning_is_an_error(self, copy: Path, tmp_path: Path) -> None:
        with (copy / "include/sizes.p4").open("a") as file:
            file.write("const int NOBODY_USES_THIS = 1;\n")
        with pytest.raises(compile.CompileError, match="NOBODY_USES_THIS"):
            compile.compile_program(copy, tmp_path / "out")


def test_missing_compiler_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="p4c-bm2-ss is not on PATH"):
        compile.compile_program(artifacts.PACKAGE, tmp_path)
    assert compile.main() == 1
