"""The committed artefacts of ``programs/control_plane.p4`` belong to its source."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
NAME = "control_plane"


def compiler():
    spec = importlib.util.spec_from_file_location("compile_test_programs", PROGRAMS / "compile.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outline(path: Path) -> dict:
    """What of the JSON does not depend on the compiler's version."""
    program = json.loads(path.read_text())
    tables = [table for pipeline in program["pipelines"] for table in pipeline["tables"] if table["key"]]
    return {
        "tables": {t["name"]: (t["key"], t["actions"], t["max_size"], t.get("entries")) for t in tables},
        "parser": [[state["name"], state["transitions"]] for state in program["parsers"][0]["parse_states"]],
        "headers": program["headers"],
    }


@pytest.mark.p4c
def test_artefacts_are_of_this_source(tmp_path) -> None:
    source = shutil.copy(PROGRAMS / f"{NAME}.p4", tmp_path)
    compiler().compile_program(Path(source), tmp_path)
    for name in (f"{NAME}.p4info.txtpb",):
        assert (tmp_path / name).read_text() == (PROGRAMS / name).read_text()
    fresh, kept = (outline(folder / f"{NAME}.json") for folder in (tmp_path, PROGRAMS))
    for table in (fresh["tables"], kept["tables"]):
        for _, _, _, entries in table.values():
            for entry in entries or ():
                entry.pop("source_info", None)
    assert fresh == kept


def test_artefacts_name_no_folder_of_a_machine() -> None:
    for path in PROGRAMS.iterdir():
        if path.suffix in (".json", ".txtpb"):
            text = path.read_text()
            assert str(Path.home()) not in text
            assert str(PROGRAMS.parent) not in text
