"""Builds small BMv2 JSON programs for tests, without a P4 compiler.

Every program parses and deparses the headers that the test names, in order.  Without tables, ingress runs
the action ``main`` and sends the packet back out of the port that it came from.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

Json = dict[str, Any]

STANDARD_METADATA = [
    ["ingress_port", 9, False],
    ["egress_spec", 9, False],
    ["egress_port", 9, False],
    ["instance_type", 32, False],
    ["packet_length", 32, False],
    ["enq_timestamp", 32, False],
    ["enq_qdepth", 19, False],
    ["deq_timedelta", 32, False],
    ["deq_qdepth", 19, False],
    ["ingress_global_timestamp", 48, False],
    ["egress_global_timestamp", 48, False],
    ["mcast_grp", 16, False],
    ["egress_rid", 16, False],
    ["checksum_error", 1, False],
    ["parser_error", 32, False],
    ["priority", 3, False],
    ["_padding", 3, False],
]
ALIASES = [
    [f"{group}.{name}", ["standard_metadata", name]]
    for group, names in {
        "queueing_metadata": ["enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth"],
        "intrinsic_metadata": [
            "ingress_global_timestamp",
            "egress_global_timestamp",
            "mcast_grp",
            "egress_rid",
            "priority",
        ],
    }.items()
    for name in names
]
ERRORS = [
    ["NoError", 0],
    ["PacketTooShort", 1],
    ["NoMatch", 2],
    ["StackOutOfBounds", 3],
    ["HeaderTooShort", 4],
    ["ParserTimeout", 5],
    ["ParserInvalidArgument", 6],
]


# --- Operands ----------------------------------------------------------------------------------


def field(header: str, name: str) -> Json:
    return {"type": "field", "value": [header, name]}


def const(value: int) -> Json:
    return {"type": "hexstr", "value": f"-{-value:#x}" if value < 0 else f"{value:#x}"}


def header(name: str) -> Json:
    return {"type": "header", "value": name}


def stack(name: str) -> Json:
    return {"type": "header_stack", "value": name}


def param(index: int) -> Json:
    return {"type": "local", "value": index}


def op(name: str, *args: Json, cond: Json | None = None) -> Json:
    """An operator; one operand goes to the right, as the compiler writes unary ones."""
    left, right = (None, *args) if len(args) == 1 else args
    value: Json = {"op": name, "left": left, "right": right}
    if cond is not None:
        value["cond"] = cond
    return {"type": "expression", "value": value}


def expression(node: Json) -> Json:
    """A parameter of a primitive: the compiler wraps expressions twice there."""
    return {"type": "expression", "value": node} if node["type"] == "expression" else node


# --- Primitives and actions --------------------------------------------------------------------


def primitive(name: str, *parameters: Json, line: int | None = None) -> Json:
    item: Json = {"op": name, "parameters": list(parameters)}
    if line is not None:
        item["source_info"] = {"filename": "test.p4", "line": line, "column": 1, "source_fragment": name}
    return item


def assign(target: Json, value: Json) -> Json:
    return primitive("assign", expression(target), expression(value))


def action(name: str, primitives: Sequence[Json], params: Sequence[tuple[str, int]] = ()) -> Json:
    data = [{"name": n, "bitwidth": w} for n, w in params]
    return {"name": name, "runtime_data": data, "primitives": list(primitives)}


BOUNCE = assign(field("standard_metadata", "egress_spec"), field("standard_metadata", "ingress_port"))


# --- Tables ------------------------------------------------------------------------------------


def key(match_type: str, target: Sequence[str], name: str = "") -> Json:
    return {"match_type": match_type, "target": list(target), "name": name or ".".join(target), "mask": None}


def table(
    name: str,
    keys: Sequence[Json],
    actions: Sequence[str],
    default: str | None = None,
    default_data: Sequence[int] = (),
    match_type: str | None = None,
    next_table: str | None = None,
    **more: Any,
) -> Json:
    """``match_type`` is by default the most general one of the keys."""
    kinds = [k["match_type"] for k in keys] or ["exact"]
    order = ["exact", "lpm", "ternary", "range"]
    item = {
        "name": name,
        "key": list(keys),
        "match_type": match_type or max(kinds, key=order.index),
        "type": "simple",
        "max_size": 1024,
        "with_counters": False,
        "support_timeout": False,
        "direct_meters": None,
        "actions": list(actions),
        "base_default_next": next_table,
        "next_tables": dict.fromkeys(actions, next_table),
        "default": (default, list(default_data)),
    }
    return item | more


# --- Programs ----------------------------------------------------------------------------------


class ProgramBuilder:
    def __init__(self) -> None:
        self.types: dict[str, list[list]] = {"standard_metadata": STANDARD_METADATA}
        self.headers: list[tuple[str, str, bool]] = [("standard_metadata", "standard_metadata", True)]
        self.stacks: list[tuple[str, str, list[str]]] = []
        self.states: list[Json] = []
        self.order: list[str] = []
        self.actions: list[Json] = []
        self.ingress: list[Json] = []
        self.egress: list[Json] = []
        self.conditionals: list[Json] = []
        self.init: str | None = None
        self.sections: Json = {}

    def header(self, name: str, fields: Sequence[tuple], metadata: bool = False) -> ProgramBuilder:
        """Fields are (name, width) or (name, width, signed); headers are padded to whole bytes."""
        rows = [[*f, False][:3] for f in fields]
        width = sum(row[1] for row in rows)
        if width % 8:
            rows.append(["_pad", 8 - width % 8, False])
        self.types[f"{name}_t"] = rows
        self.headers.append((name, f"{name}_t", metadata))
        return self

    def stack(self, name: str, fields: Sequence[tuple], size: int) -> ProgramBuilder:
        self.types[f"{name}_t"] = [[*f, False][:3] for f in fields]
        names = [f"{name}[{i}]" for i in range(size)]
        self.headers += [(n, f"{name}_t", False) for n in names]
        self.stacks.append((name, f"{name}_t", names))
        return self

    def state(
        self, name: str, ops: Sequence[Json], key: Sequence[Json] = (), transitions: Sequence[tuple] = ()
    ) -> ProgramBuilder:
        """Transitions are (value, mask, next state) as hex strings; value None is the default."""
        rows = [
            {"type": "default", "value": None, "mask": None, "next_state": following}
            if value is None
            else {"type": "hexstr", "value": value, "mask": mask, "next_state": following}
            for value, mask, following in transitions
        ]
        self.states.append(
            {"name": name, "parser_ops": list(ops), "transition_key": list(key), "transitions": rows}
        )
        return self

    def parse(self, *names: str) -> ProgramBuilder:
        """One state that extracts these headers; they are also deparsed."""
        ops = [{"op": "extract", "parameters": [{"type": "regular", "value": n}]} for n in names]
        self.order += names
        return self.state("start", ops, transitions=[(None, None, None)])

    def action(
        self, name: str, primitives: Sequence[Json], params: Sequence[tuple[str, int]] = ()
    ) -> ProgramBuilder:
        self.actions.append(action(name, primitives, params))
        return self

    def main(self, *primitives: Json) -> ProgramBuilder:
        """Ingress: these primitives, then back out of the ingress port."""
        self.action("main", [*primitives, BOUNCE])
        self.ingress.append(table("tbl_main", [], ["main"], "main", const=True))
        return self

    def json(self) -> Json:
        ids = itertools.count()
        action_ids = {a["name"]: i for i, a in enumerate(self.actions)}
        header_ids = {name: i for i, (name, _, _) in enumerate(self.headers)}

        def finished(item: Json) -> Json:
            done = dict(item, id=next(ids), action_ids=[action_ids[a] for a in item["actions"]])
            name, data = done.pop("default")
            fixed = done.pop("const", False)
            if name is not None:
                done["default_entry"] = {
                    "action_id": action_ids[name],
                    "action_const": fixed,
                    "action_data": [hex(v) for v in data],
                    "action_entry_const": fixed,
                }
            for entry in done.get("entries", []):
                entry["action_entry"]["action_id"] = action_ids[entry["action_entry"].pop("action")]
            return done

        def pipeline(number: int, name: str, tables: list[Json], conditionals: list[Json]) -> Json:
            first = self.init if number == 0 and self.init else tables[0]["name"] if tables else None
            return {
                "name": name,
                "id": number,
                "init_table": first,
                "tables": [finished(t) for t in tables],
                "action_profiles": [],
                "conditionals": [dict(c, id=i) for i, c in enumerate(conditionals)],
            }

        numbered: Iterator[Json] = (dict(a, id=i) for i, a in enumerate(self.actions))
        return {
            "program": "test.p4",
            "__meta__": {"version": [2, 23]},
            "header_types": [
                {"name": n, "id": i, "fields": f} for i, (n, f) in enumerate(self.types.items())
            ],
            "headers": [
                {"name": n, "id": i, "header_type": t, "metadata": m, "pi_omit": True}
                for i, (n, t, m) in enumerate(self.headers)
            ],
            "header_stacks": [
                {
                    "name": n,
                    "id": i,
                    "header_type": t,
                    "size": len(m),
                    "header_ids": [header_ids[x] for x in m],
                }
                for i, (n, t, m) in enumerate(self.stacks)
            ],
            "header_union_types": [],
            "header_unions": [],
            "header_union_stacks": [],
            "field_lists": [],
            "errors": ERRORS,
            "enums": [],
            "parsers": [
                {
                    "name": "parser",
                    "id": 0,
                    "init_state": self.states[0]["name"],
                    "parse_states": [dict(s, id=i) for i, s in enumerate(self.states)],
                }
            ],
            "parse_vsets": [],
            "deparsers": [{"name": "deparser", "id": 0, "order": self.order, "primitives": []}],
            "meter_arrays": [],
            "counter_arrays": [],
            "register_arrays": [],
            "calculations": [],
            "learn_lists": [],
            "actions": list(numbered),
            "pipelines": [
                pipeline(0, "ingress", self.ingress, self.conditionals),
                pipeline(1, "egress", self.egress, []),
            ],
            "checksums": [],
            "force_arith": [],
            "extern_instances": [],
            "field_aliases": ALIASES,
        } | self.sections
