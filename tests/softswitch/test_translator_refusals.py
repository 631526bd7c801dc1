"""Programs that the embedded switch cannot run are refused by name and source line, uncompiled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bmv2_json import ProgramBuilder, assign, const, field, key, primitive, table

from netreduce.softswitch import native_cache
from netreduce.softswitch.compiler import compile_program
from netreduce.softswitch.translator import MalformedProgram, UnsupportedConstruct, load_program

SOURCE = {"filename": "program.p4", "line": 42, "column": 1, "source_fragment": "some text"}


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch):
    """Refusal comes before the compiler; these tests would fail if it were asked."""

    def find_compiler():
        raise AssertionError("a refused program reached the compiler")

    monkeypatch.setattr(native_cache, "find_compiler", find_compiler)


def simple() -> ProgramBuilder:
    return ProgramBuilder().header("h", [("a", 16)]).parse("h")


def with_section(name: str, item: dict) -> dict:
    return simple().main().json() | {name: [item | {"source_info": SOURCE}]}


def with_primitive(name: str, *parameters: dict) -> dict:
    return simple().main(primitive(name, *parameters, line=7)).json()


def with_table(**options) -> dict:
    builder = simple().action("nothing", [])
    builder.ingress.append(table("t", [key("exact", ("h", "a"))], ["nothing"], source_info=SOURCE, **options))
    return builder.json()


def with_parser_op(item: dict) -> dict:
    program = simple().main().json()
    program["parsers"][0]["parse_states"][0]["parser_ops"].append(item | {"source_info": SOURCE})
    return program


def with_calculation(algorithm: str) -> dict:
    inputs = [field("h", "a")]
    return with_section("calculations", {"name": "calc", "id": 0, "algo": algorithm, "input": inputs})


def with_varbit() -> dict:
    program = simple().main().json()
    program["header_types"].append({"name": "v_t", "id": 9, "fields": [["v", "*"]], "source_info": SOURCE})
    return program


def with_vset_transition() -> dict:
    program = simple().main().json()
    (state,) = program["parsers"][0]["parse_states"]
    state["transition_key"] = [field("h", "a")]
    state["transitions"] = [
        {"type": "parse_vset", "value": "set", "mask": None, "next_state": None, "source_info": SOURCE}
    ]
    return program


@pytest.mark.parametrize(
    "program, construct",
    [
        (with_section("header_unions", {"name": "u", "id": 0}), "header unions (u)"),
        (with_section("parse_vsets", {"name": "s", "id": 0}), "parser value sets (s)"),
        (with_section("meter_arrays", {"name": "m", "id": 0}), "meters (m)"),
        (with_section("extern_instances", {"name": "e", "id": 0}), "extern instances (e)"),
        (with_primitive("execute_meter"), "primitive 'execute_meter'"),
        (with_primitive("modify_field_rng_uniform"), "primitive 'modify_field_rng_uniform'"),
        (with_primitive("assign_union"), "primitive 'assign_union'"),
        (with_table(type="indirect"), "tables of type 'indirect' (t)"),
        (with_table(direct_meters="m"), "direct meters (m)"),
        (with_table(support_timeout=True), "idle timeouts (table t)"),
        (with_table(match_type="selector"), "tables of match type 'selector'"),
        (with_parser_op({"op": "extract_VL", "parameters": []}), "parser operation 'extract_VL'"),
        (with_calculation("toeplitz"), "hash algorithm 'toeplitz'"),
        (with_varbit(), "variable-length field v_t.v (varbit)"),
        (with_vset_transition(), "transitions of type 'parse_vset'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refused_by_name_and_line(program, construct):
    with pytest.raises(UnsupportedConstruct) as caught:
        compile_program(program)
    assert caught.value.construct.startswith(construct)
    source = caught.value.source
    assert (source.filename, source.line) in {("program.p4", 42), ("test.p4", 7)}
    assert str(caught.value).startswith(f"{source.filename}:{source.line}: the embedded switch does not")


def test_unknown_match_kind_is_refused():
    builder = simple().action("nothing", [])
    keys = [key("exact", ("h", "a")) | {"match_type": "fuzzy"}]
    builder.ingress.append(table("t", keys, ["nothing"], match_type="exact", source_info=SOURCE))
    with pytest.raises(UnsupportedConstruct, match=r"program.p4:42: .*match kind 'fuzzy' \(table t\)"):
        compile_program(builder.json())


def test_other_architectures_are_refused():
    program = simple().main().json()
    program["pipelines"] = program["pipelines"][:1]
    with pytest.raises(UnsupportedConstruct, match=r"only v1model"):
        compile_program(program)
    program = simple().main().json()
    program["__meta__"]["version"] = [3, 0]
    with pytest.raises(UnsupportedConstruct, match=r"version 3\.0"):
        compile_program(program)


def broken(change) -> dict:
    program = simple().main(assign(field("h", "a"), const(1))).json()
    change(program)
    return program


@pytest.mark.parametrize(
    "source",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        broken(lambda p: p.update(headers=[3])),
        broken(lambda p: p["actions"][0]["primitives"][0]["parameters"].pop()),
        broken(lambda p: p["pipelines"][0]["tables"][0].update(match_type={})),
        broken(lambda p: p["pipelines"][0]["tables"][0].update(action_ids=[37], actions=["x"])),
        broken(lambda p: p.pop("parsers")),
        broken(lambda p: p.pop("__meta__")),
        broken(lambda p: p["headers"][1].update(header_type="nothing_t")),
        broken(lambda p: p["parsers"][0].update(init_state="nowhere")),
        broken(lambda p: p["pipelines"][0].update(init_table="nowhere")),
        broken(lambda p: p["actions"][0]["primitives"][0]["parameters"][0].update(value=["h", "zz"])),
        broken(lambda p: p["deparsers"][0].update(order=["zz"])),
        broken(lambda p: p["pipelines"][0]["tables"][0].pop("key")),
    ],
)
def test_malformed_programs_say_so(source):
    with pytest.raises(MalformedProgram) as caught:
        compile_program(source)
    assert str(caught.value)


def test_truncated_file_is_malformed(tmp_path: Path):
    text = json.dumps(simple().main().json())
    path = tmp_path / "cut.json"
    path.write_text(text[: len(text) // 2])
    with pytest.raises(MalformedProgram, match="cut: not JSON"):
        load_program(path)


def test_names_from_the_program_cannot_break_out_of_the_c_text():
    """Names and source fragments end up in comments and strings."""
    hostile = '*/ #error "x" \\ ??/ \n /*'
    builder = ProgramBuilder().header("h", [("a", 16)]).parse("h")
    item = primitive(
        "log_msg", {"type": "string", "value": hostile}, {"type": "parameters_vector", "value": []}
    )
    item["source_info"] = {"filename": hostile, "line": 1, "column": 1, "source_fragment": hostile}
    builder.main(item)
    program = builder.json()
    program["actions"][0]["name"] = program["pipelines"][0]["tables"][0]["actions"][0] = hostile
    program["pipelines"][0]["tables"][0]["next_tables"] = {hostile: None}
    program["program"] = hostile
    from netreduce.softswitch.translator import translate

    text = translate(load_program(program))
    assert "\n #error" not in text
    assert all("*/" not in line[:-2] for line in text.splitlines() if line.strip().startswith("/*"))
