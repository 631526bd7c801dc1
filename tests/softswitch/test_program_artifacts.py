"""The committed artefacts of ``programs/*.p4`` belong to their sources."""

import importlib.util
import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest

PROGRAMS = Path(__file__).parent / "programs"
SOURCES = sorted(PROGRAMS.glob("*.p4"))


def compiler() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compile_test_programs", PROGRAMS / "compile.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outline(path: Path) -> dict:
    """What of the JSON does not depend on the compiler's version."""
    program = json.loads(path.read_text())
    tables = [table for pipeline in program["pipelines"] for table in pipeline["tables"] if table["key"]]
    for table in tables:
        for entry in table.get("entries", ()):
            entry.pop("source_info", None)
    return {
        "tables": {t["name"]: (t["key"], t["actions"], t["max_size"], t.get("entries")) for t in tables},
        "parser": [[state["name"], state["transitions"]] for state in program["parsers"][0]["parse_states"]],
        "headers": program["headers"],
    }


@pytest.mark.p4c
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_artefacts_are_of_this_source(source: Path, tmp_path: Path) -> None:
    compiler().compile_program(Path(shutil.copy(source, tmp_path)), tmp_path)
    name = f"{source.stem}.p4info.txtpb"
    assert (tmp_path / name).read_text() == (PROGRAMS / name).read_text()
    fresh, kept = (outline(folder / f"{source.stem}.json") for folder in (tmp_path, PROGRAMS))
    assert fresh == kept


@pytest.mark.parametrize("suffix", [".json", ".p4info.txtpb"])
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_artefacts_name_no_folder_of_a_machine(source: Path, suffix: str) -> None:
    text = PROGRAMS.joinpath(f"{source.stem}{suffix}").read_text()
    assert str(Path.home()) not in text
    assert str(PROGRAMS.parent) not in text
