"""Reads BMv2 JSON into :class:`Program`, refusing by name what the embedded switch does not implement.

Format: "BMv2 JSON input format", version 2.x, of the P4 behavioral model.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .errors import MalformedProgram, SourceInfo, UnsupportedConstruct
from .program import (
    Action,
    ActionCall,
    BoolConst,
    Calculation,
    CalculationInput,
    Checksum,
    Conditional,
    Const,
    CounterArray,
    Entry,
    Field,
    FieldList,
    FieldRef,
    Header,
    HeaderRef,
    HeaderStack,
    HeaderType,
    Key,
    KeyPart,
    LastRef,
    Lookahead,
    Named,
    Node,
    Op,
    Param,
    ParamRef,
    Parser,
    ParserOp,
    ParseState,
    PipelineControl,
    Primitive,
    Program,
    RegisterArray,
    StackRef,
    Table,
    Text,
    Transition,
    Vector,
)

MAX_FIELD_WIDTH = 65535
Json = dict[str, Any]

REFUSED_SECTIONS = {
    "header_unions": "header unions",
    "header_union_stacks": "stacks of header unions",
    "parse_vsets": "parser value sets",
    "meter_arrays": "meters",
    "extern_instances": "extern instances",
}

CORE_ERRORS = (
    "NoError",
    "PacketTooShort",
    "NoMatch",
    "StackOutOfBounds",
    "HeaderTooShort",
    "ParserTimeout",
    "ParserInvalidArgument",
)


def load_program(source: str | Path | bytes | Json, name: str = "") -> Program:
    """Reads a program.

    Args:
        source: a path, the JSON text as bytes, or the decoded JSON.
        name: what messages call the program; by default the file's or the program's own name.

    Raises:
        UnsupportedConstruct: the program needs something that is not implemented.
        MalformedProgram: the JSON is not a BMv2 program.
        OSError: the file cannot be read.
    """
    if isinstance(source, str | Path):
        name = name or Path(source).stem
        source = Path(source).read_bytes()
    if isinstance(source, bytes):
        try:
            source = json.loads(source)
        except ValueError as error:
            raise MalformedProgram(f"{name or 'program'}: not JSON: {error}") from error
        except RecursionError:
            raise MalformedProgram(f"{name or 'program'}: the JSON is nested too deeply") from None
    if not isinstance(source, dict):
        raise MalformedProgram(f"{name or 'program'}: BMv2 JSON is an object, not a {type(source).__name__}")
    try:
        return _Loader(source, name).load()
    except RecursionError:
        raise MalformedProgram(f"{name or 'program'}: an expression is nested too deeply") from None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise MalformedProgram(
            f"{name or 'program'}: not a BMv2 JSON program: {type(error).__name__}: {error}"
        ) from error


def source_info(item: Json) -> SourceInfo | None:
    info = item.get("source_info")
    if not info:
        return None
    return SourceInfo(info["filename"], int(info["line"]), info.get("source_fragment", ""))


def mention(root: Any, names: set[str]) -> SourceInfo | None:
    """Where the program first uses one of these names, for declarations whose place the compiler omits.

    The place of the innermost construct around the use that has one, or else of something beside the use.
    """
    if isinstance(root, str):
        return None
    parts = list(root.values()) if isinstance(root, dict) else root if isinstance(root, list) else []
    for part in parts:
        if mentions(part, names):
            found = mention(part, names)
            return found or (source_info(root) if isinstance(root, dict) else None) or first_source(root)
    return None


def mentions(root: Any, names: set[str]) -> bool:
    if isinstance(root, dict | list):
        return any(mentions(part, names) for part in (root.values() if isinstance(root, dict) else root))
    return isinstance(root, str) and root in names


def first_source(root: Any) -> SourceInfo | None:
    if isinstance(root, dict) and root.get("source_info"):
        return source_info(root)
    if isinstance(root, dict | list):
        parts = root.values() if isinstance(root, dict) else root
        return next(filter(None, map(first_source, parts)), None)
    return None


class _Loader:
    def __init__(self, root: Json, name: str):
        self.root = root
        self.name = name or Path(root.get("program", "program")).stem
        self.headers: dict[str, Header] = {}
        self.stacks: dict[str, HeaderStack] = {}
        self.actions: dict[int, Action] = {}

    def load(self) -> Program:
        self._check_version()
        self._refuse_sections()
        self._load_headers()
        self.actions = {a["id"]: self._action(a) for a in self.root.get("actions", [])}
        pipelines = {p["name"]: self._pipeline(p) for p in self.root["pipelines"]}
        for needed in ("ingress", "egress"):
            if needed not in pipelines:
                raise UnsupportedConstruct(f"an architecture without the pipeline {needed!r} (only v1model)")
        return Program(
            name=self.name,
            headers=self.headers,
            stacks=self.stacks,
            errors=self._errors(),
            parser=self._parser(),
            deparser_order=self._deparser(),
            actions=self.actions,
            ingress=pipelines["ingress"],
            egress=pipelines["egress"],
            counters={c["id"]: self._counter(c) for c in self.root.get("counter_arrays", [])},
            registers={r["id"]: self._register(r) for r in self.root.get("register_arrays", [])},
            calculations={c["name"]: self._calculation(c) for c in self.root.get("calculations", [])},
            checksums=tuple(self._checksum(c) for c in self.root.get("checksums", [])),
            field_lists=self._field_lists("field_lists"),
            learn_lists=self._field_lists("learn_lists"),
            field_aliases={a: self._field_ref(f) for a, f in self.root.get("field_aliases", [])},
        )

    # --- Whole file ----------------------------------------------------------------------------

    def _check_version(self) -> None:
        version = self.root.get("__meta__", {}).get("version")
        if version is None:
            raise MalformedProgram(f"{self.name}: no __meta__.version; is this the output of p4c-bm2-ss?")
        if version[0] != 2:
            raise UnsupportedConstruct(
                f"version {'.'.join(map(str, version))} of the BMv2 JSON format (only 2.x)"
            )

    def _refuse_sections(self) -> None:
        for section, construct in REFUSED_SECTIONS.items():
            for item in self.root.get(section, []):
                raise UnsupportedConstruct(
                    f"{construct} ({item.get('name')})", self._source_of(section, item)
                )
        for pipeline in self.root.get("pipelines", []):
            for profile in pipeline.get("action_profiles", []):
                raise UnsupportedConstruct(f"action profiles ({profile['name']})", source_info(profile))

    def _source_of(self, section: str, item: Json) -> SourceInfo | None:
        names = {str(item.get("name"))}
        if section in ("header_unions", "header_union_stacks"):
            members = set(item.get("header_ids", []))
            names |= {h["name"] for h in self.root.get("headers", []) if h["id"] in members}
        return source_info(item) or mention(self._behaviour(), names)

    def _behaviour(self) -> list:
        """The sections that have source places."""
        sections = ("parsers", "actions", "pipelines", "checksums", "calculations", "deparsers")
        return [self.root.get(section, []) for section in sections]

    def _errors(self) -> dict[str, int]:
        """Error numbers; core errors that the program does not list come after the listed ones."""
        errors = {name: int(value) for name, value in self.root.get("errors", [])}
        following = max(errors.values(), default=-1) + 1
        for name in CORE_ERRORS:
            if name not in errors:
                errors[name] = following
                following += 1
        return errors

    # --- Headers -------------------------------------------------------------------------------

    def _load_headers(self) -> None:
        types = {t["name"]: self._header_type(t) for t in self.root["header_types"]}
        by_id = {}
        for item in self.root["headers"]:
            header = Header(item["name"], item["id"], types[item["header_type"]], bool(item["metadata"]))
            if not header.metadata and header.type.width % 8:
                raise MalformedProgram(
                    f"{self.name}: header {header.name} has {header.type.width} bits, not whole bytes"
                )
            self.headers[header.name] = header
            by_id[header.id] = header
        for item in self.root.get("header_stacks", []):
            names = tuple(by_id[i].name for i in item["header_ids"])
            self.stacks[item["name"]] = HeaderStack(item["name"], types[item["header_type"]], names)

    def _header_type(self, item: Json) -> HeaderType:
        fields = []
        for name, width, *rest in item["fields"]:
            if width == "*":
                users = {h["name"] for h in self.root["headers"] if h["header_type"] == item["name"]}
                source = source_info(item) or mention(self._behaviour(), users)
                raise UnsupportedConstruct(f"variable-length field {item['name']}.{name} (varbit)", source)
            if len(rest) > 1 and rest[1]:
                raise UnsupportedConstruct(f"saturating field {item['name']}.{name}", source_info(item))
            if not 0 < width <= MAX_FIELD_WIDTH:
                raise UnsupportedConstruct(f"field {item['name']}.{name} of {width} bits", source_info(item))
            fields.append(Field(name, int(width), bool(rest and rest[0])))
        return HeaderType(item["name"], tuple(fields))

    def _field_ref(self, value: list[str]) -> FieldRef:
        header, name = value
        if name != "$valid$" and name not in self.headers[header].type.by_name:
            raise KeyError(f"field {header}.{name}")
        return FieldRef(header, name)

    # --- Expressions ---------------------------------------------------------------------------

    def _node(self, item: Json, source: SourceInfo | None = None) -> Node:
        kind = item["type"]
        value = item.get("value")
        match kind:
            case "expression":
                return self._expression(value, source_info(item) or source)
            case "hexstr":
                return Const(int(value, 16))
            case "bool":
                return BoolConst(bool(value))
            case "field" if isinstance(value[0], dict):
                return self._indexed_field(value, source)
            case "field":
                return self._field_ref(value)
            case "local" | "runtime_data":
                return ParamRef(int(value))
            case "header" | "regular":
                if value not in self.headers:
                    raise KeyError(f"header {value}")
                return HeaderRef(value)
            case "header_stack" | "stack":
                if value not in self.stacks:
                    raise KeyError(f"header stack {value}")
                return StackRef(value)
            case "stack_field":
                stack, name = value
                if name not in self.stacks[stack].type.by_name:
                    raise KeyError(f"field {stack}.last.{name}")
                return LastRef(stack, name)
            case "lookahead":
                return Lookahead(int(value[0]), int(value[1]))
            case "string":
                return Text(str(value))
            case "parameters_vector":
                return Vector(tuple(self._node(v, source) for v in value))
            case "calculation" | "register_array" | "counter_array" | "meter_array":
                return Named(kind, value)
            case _:
                raise UnsupportedConstruct(f"operands of type {kind!r}", source)

    def _indexed_field(self, value: list, source: SourceInfo | None) -> Node:
        """A field of a stack element that an expression selects, as the compiler writes isValid() of one."""
        header = self._expression(value[0], source)
        match header:
            case Op("dereference_header_stack", (StackRef(stack), _)):
                names = [f.name for f in self.stacks[stack].type.fields] + ["$valid$"]
                return Op("access_field", (header, Const(names.index(value[1]))), source)
        raise UnsupportedConstruct("fields of computed headers", source)

    def _expression(self, value: Json, source: SourceInfo | None) -> Node:
        if value is None:
            return Const(0)
        if "type" in value:
            return self._node(value, source)
        op = value["op"]
        if op == "access_field":
            args = (self._node(value["left"], source), Const(int(value["right"])))
        else:
            operands = [value.get("cond"), value.get("left"), value.get("right")]
            args = tuple(self._node(v, source) for v in operands if v is not None)
        return Op(op, args, source)

    # --- Parser and deparser -------------------------------------------------------------------

    def _parser(self) -> Parser:
        parsers = self.root["parsers"]
        if len(parsers) != 1:
            raise UnsupportedConstruct(f"{len(parsers)} parsers (v1model has one)")
        states = {s["name"]: self._state(s) for s in parsers[0]["parse_states"]}
        parser = Parser(parsers[0]["name"], parsers[0]["init_state"], states)
        for state in states.values():
            for transition in state.transitions:
                if transition.next_state is not None and transition.next_state not in states:
                    raise KeyError(f"parser state {transition.next_state}")
        if parser.init_state not in states:
            raise KeyError(f"parser state {parser.init_state}")
        return parser

    def _state(self, item: Json) -> ParseState:
        ops = tuple(self._parser_op(op, item["name"]) for op in item["parser_ops"])
        key = tuple(self._key_part(part) for part in item["transition_key"])
        transitions = tuple(self._transition(t, key, item) for t in item["transitions"])
        return ParseState(item["name"], ops, key, transitions, source_info(item))

    def _parser_op(self, item: Json, state: str) -> ParserOp | Primitive:
        source = source_info(item)
        op = item["op"]
        if op == "primitive":
            inner = item["parameters"][0]
            return self._primitive(inner, source_info(inner) or source)
        if op == "shift":
            return ParserOp(op, (Const(int(item["parameters"][0])),), source)
        if op not in ("extract", "set", "verify", "advance"):
            raise UnsupportedConstruct(f"parser operation {op!r}", source, f"parser state {state}")
        if op == "verify":
            return ParserOp(
                op, tuple(self._expression_or_node(p, source) for p in item["parameters"]), source
            )
        for parameter in item["parameters"]:
            if parameter["type"] == "union_stack":
                raise UnsupportedConstruct("extraction to a stack of header unions", source)
        return ParserOp(op, tuple(self._node(p, source) for p in item["parameters"]), source)

    def _expression_or_node(self, item: Json, source: SourceInfo | None) -> Node:
        return self._expression(item, source)

    def _width_of(self, node: Node) -> int:
        match node:
            case FieldRef(header, name):
                return 1 if name == "$valid$" else self.headers[header].type.by_name[name].width
            case LastRef(stack, name):
                return self.stacks[stack].type.by_name[name].width
            case Lookahead(_, width):
                return width
        raise UnsupportedConstruct(f"{type(node).__name__} in a select expression")

    def _key_part(self, item: Json) -> KeyPart:
        node = self._node(item)
        return KeyPart(node, self._width_of(node))

    def _transition(self, item: Json, key: tuple[KeyPart, ...], state: Json) -> Transition:
        kind = item.get("type", "hexstr")
        if kind == "default" or item.get("value") in ("default", None):
            return Transition(None, None, item["next_state"])
        if kind != "hexstr":
            raise UnsupportedConstruct(
                f"transitions of type {kind!r}",
                source_info(item) or source_info(state),
                f"state {state['name']}",
            )
        values = _split_padded(item["value"], [part.width for part in key])
        if item.get("mask") is None:
            masks = tuple((1 << part.width) - 1 for part in key)
        else:
            masks = _split_padded(item["mask"], [part.width for part in key])
        return Transition(values, masks, item["next_state"])

    def _deparser(self) -> tuple[str, ...]:
        deparsers = self.root["deparsers"]
        if len(deparsers) != 1:
            raise UnsupportedConstruct(f"{len(deparsers)} deparsers (v1model has one)")
        deparser = deparsers[0]
        for primitive in deparser.get("primitives", []):
            raise UnsupportedConstruct(
                f"primitive {primitive['op']!r} in a deparser",
                source_info(primitive) or source_info(deparser),
            )
        for name in deparser["order"]:
            if name not in self.headers:
                raise KeyError(f"header {name}")
        return tuple(deparser["order"])

    # --- Actions and tables --------------------------------------------------------------------

    def _action(self, item: Json) -> Action:
        params = tuple(Param(p["name"], int(p["bitwidth"])) for p in item["runtime_data"])
        primitives = tuple(self._primitive(p, source_info(p)) for p in item["primitives"])
        return Action(item["name"], item["id"], params, primitives, source_info(item))

    def _primitive(self, item: Json, source: SourceInfo | None) -> Primitive:
        return Primitive(item["op"], tuple(self._node(p, source) for p in item["parameters"]), source)

    def _pipeline(self, item: Json) -> PipelineControl:
        nodes: dict[str, Table | Conditional | ActionCall] = {}
        for table in item["tables"]:
            nodes[table["name"]] = self._table(table, item["name"])
        for condition in item["conditionals"]:
            nodes[condition["name"]] = Conditional(
                condition["name"],
                self._expression(condition["expression"], source_info(condition)),
                condition.get("true_next"),
                condition.get("false_next"),
                source_info(condition),
            )
        for call in item.get("action_calls", []):
            nodes[call["name"]] = ActionCall(
                call["name"], call["action_id"], call.get("next_node"), source_info(call)
            )
        return PipelineControl(item["name"], item.get("init_table"), nodes)

    def _table(self, item: Json, pipeline: str) -> Table:
        source = source_info(item)
        if item["type"] != "simple":
            raise UnsupportedConstruct(f"tables of type {item['type']!r} ({item['name']})", source)
        if item.get("direct_meters"):
            raise UnsupportedConstruct(f"direct meters ({item['direct_meters']})", source)
        if item.get("support_timeout"):
            raise UnsupportedConstruct(f"idle timeouts (table {item['name']})", source)
        keys = tuple(self._key(k, item["name"], source) for k in item["key"])
        action_ids = tuple(item["action_ids"])
        next_tables = item["next_tables"]
        by_hit = "__HIT__" in next_tables or "__MISS__" in next_tables
        by_action = {}
        if not by_hit:
            for action_id, name in zip(action_ids, item["actions"], strict=True):
                by_action[action_id] = next_tables[name]
        default = item.get("default_entry")
        return Table(
            name=item["name"],
            id=item["id"],
            pipeline=pipeline,
            match_type=item["match_type"],
            keys=keys,
            max_size=int(item["max_size"]),
            with_counters=bool(item.get("with_counters", False)),
            action_ids=action_ids,
            next_by_action=by_action,
            next_hit=next_tables.get("__HIT__"),
            next_miss=next_tables.get("__MISS__"),
            by_hit=by_hit,
            default_action_id=default["action_id"] if default else None,
            default_data=tuple(int(d, 16) for d in default.get("action_data", [])) if default else (),
            const_default_action=bool(default and default.get("action_const", False)),
            const_entries="entries" in item,
            entries=tuple(self._entry(e, keys) for e in item.get("entries", [])),
            base_default_next=item.get("base_default_next"),
            source=source,
        )

    def _key(self, item: Json, table: str, source: SourceInfo | None) -> Key:
        kind = item["match_type"]
        if kind == "valid":
            target = FieldRef(
                item["target"] if isinstance(item["target"], str) else item["target"][0], "$valid$"
            )
            kind = "exact"
        elif kind in ("exact", "lpm", "ternary", "range"):
            target = self._field_ref(item["target"])
        else:
            raise UnsupportedConstruct(f"match kind {kind!r} (table {table})", source)
        width = self._width_of(target)
        name = item.get("name") or ".".join(item["target"])
        mask = item.get("mask")
        return Key(name, kind, target, width, None if mask is None else int(mask, 16))

    def _entry(self, item: Json, keys: tuple[Key, ...]) -> Entry:
        values, masks = [], []
        for key, part in zip(keys, item["match_key"], strict=True):
            full = (1 << key.width) - 1
            match part["match_type"]:
                case "valid":
                    value, mask = int(bool(part["key"])), 1
                case "exact":
                    value, mask = int(part["key"], 16), full
                case "lpm":
                    mask = full ^ (full >> part["prefix_length"])
                    value = int(part["key"], 16) & mask
                case "ternary":
                    mask = int(part["mask"], 16) & full
                    value = int(part["key"], 16) & mask
                case "range":
                    value, mask = int(part["start"], 16), int(part["end"], 16)
                case kind:
                    raise UnsupportedConstruct(f"match kind {kind!r} of a constant entry", source_info(item))
            values.append(value & full)
            masks.append(mask & full)
        action = item["action_entry"]
        return Entry(
            tuple(values),
            tuple(masks),
            -int(item.get("priority", 0)),  # in JSON the smaller number wins
            action["action_id"],
            tuple(int(d, 16) for d in action["action_data"]),
        )

    # --- Stateful objects and calculations -----------------------------------------------------

    def _counter(self, item: Json) -> CounterArray:
        table = item.get("binding") if item.get("is_direct") else None
        return CounterArray(item["name"], item["id"], int(item.get("size") or 0), table, source_info(item))

    def _register(self, item: Json) -> RegisterArray:
        return RegisterArray(
            item["name"], item["id"], int(item["size"]), int(item["bitwidth"]), source_info(item)
        )

    def _calculation(self, item: Json) -> Calculation:
        inputs = []
        for part in item["input"]:
            match part["type"]:
                case "field":
                    ref = self._field_ref(part["value"])
                    inputs.append(CalculationInput("field", ref, self._width_of(ref)))
                case "hexstr":
                    inputs.append(
                        CalculationInput("hexstr", Const(int(part["value"], 16)), int(part["bitwidth"]))
                    )
                case "header":
                    header = HeaderRef(part["value"])
                    inputs.append(CalculationInput("header", header, self.headers[part["value"]].type.width))
                case "payload":
                    inputs.append(CalculationInput("payload", None, 0))
                case kind:
                    raise UnsupportedConstruct(
                        f"input of type {kind!r} to calculation {item['name']}", source_info(item)
                    )
        return Calculation(item["name"], item["algo"], tuple(inputs), source_info(item))

    def _checksum(self, item: Json) -> Checksum:
        source = source_info(item)
        if item["type"] != "generic":
            raise UnsupportedConstruct(f"checksums of type {item['type']!r} ({item['name']})", source)
        condition = item.get("if_cond")
        return Checksum(
            item["name"],
            self._field_ref(item["target"]),
            item["calculation"],
            None if condition is None else self._node(condition, source),
            bool(item.get("verify", True)),
            bool(item.get("update", True)),
            source,
        )

    def _field_lists(self, section: str) -> dict[int, FieldList]:
        lists = {}
        for item in self.root.get(section, []):
            items = []
            for element in item["elements"]:
                node = self._node(element, source_info(item))
                width = element["bitwidth"] if isinstance(node, Const) else self._width_of(node)
                items.append((node, int(width)))
            lists[item["id"]] = FieldList(item["id"], item["name"], tuple(items))
        return lists


def _split_padded(text: str, widths: list[int]) -> tuple[int, ...]:
    """Splits a hex string in which every field is padded to whole bytes."""
    sizes = [(w + 7) // 8 for w in widths]
    digits = text.removeprefix("0x")
    if len(digits) != 2 * sum(sizes):
        raise ValueError(f"transition value {text} has {len(digits)} digits, the key has {2 * sum(sizes)}")
    values, at = [], 0
    for size in sizes:
        values.append(int(digits[at : at + 2 * size], 16))
        at += 2 * size
    return tuple(values)
