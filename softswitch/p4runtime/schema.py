"""What the controller sees (P4Info) beside what the data plane runs (BMv2 JSON), matched by name."""

from __future__ import annotations

from dataclasses import dataclass

from ..translator import Program
from .errors import invalid_argument, not_found, unimplemented
from .protos import p4i
from .values import pad

EXACT = p4i.MatchField.EXACT
LPM = p4i.MatchField.LPM
TERNARY = p4i.MatchField.TERNARY
RANGE = p4i.MatchField.RANGE
OPTIONAL = p4i.MatchField.OPTIONAL

_ONE_PROGRAM = "are P4Info and device config of one program?"

# P4Info match type: the JSON match types that can carry it out.
_JSON_MATCH_TYPES = {
    EXACT: ("exact",),
    LPM: ("lpm",),
    TERNARY: ("ternary",),
    RANGE: ("range",),
    OPTIONAL: ("ternary", "optional"),
}


@dataclass(frozen=True)
class MatchField:
    id: int
    name: str
    width: int
    match_type: int
    """``p4.config.v1.MatchField.MatchType``"""
    position: int
    """Index in the JSON table's key."""


@dataclass(frozen=True)
class Param:
    id: int
    name: str
    width: int


@dataclass(frozen=True)
class ActionInfo:
    """An action as one table uses it: the JSON may have a copy of it for every table."""

    id: int
    name: str
    json_id: int
    params: tuple[Param, ...]
    in_entries: bool
    """May be an entry's action (scope)."""
    as_default: bool
    """May be the default action (scope)."""


@dataclass(frozen=True)
class TableInfo:
    id: int
    name: str
    json_id: int
    fields: tuple[MatchField, ...]
    """In the order of the P4Info, which is the order of replies."""
    widths: tuple[int, ...]
    """Of the JSON table's key, in its order."""
    actions: dict[int, ActionInfo]
    needs_priority: bool
    constant: bool
    const_default: bool
    direct_counter: int | None
    default_json_action: int | None
    default_data: tuple[int, ...]

    def pack(self, parts: list[int]) -> bytes:
        """A key's values or masks, in the JSON order, as ``csrc/pipeline.h`` lays them out."""
        return b"".join(pad(part, width) for part, width in zip(parts, self.widths, strict=True))

    def action_by_json_id(self, json_id: int) -> ActionInfo | None:
        return next((action for action in self.actions.values() if action.json_id == json_id), None)


@dataclass(frozen=True)
class ArrayInfo:
    """An indirect counter or a register."""

    id: int
    name: str
    json_id: int
    size: int
    width: int = 0
    """Bits of a register cell; 0: its type is not a plain bit string."""


@dataclass(frozen=True)
class PacketMetadata:
    """A controller header: fields in wire order."""

    fields: tuple[Param, ...]

    @property
    def length(self) -> int:
        """Bytes."""
        return sum(f.width for f in self.fields) // 8


class Schema:
    """All objects by P4Info id.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT when P4Info and JSON are not of one program, UNIMPLEMENTED for
            P4Info features that the server does not have.
    """

    def __init__(self, p4info: p4i.P4Info, program: Program):
        self.p4info = p4info
        self.program = program
        self._actions = {action.preamble.id: action for action in p4info.actions}
        direct = {counter.direct_table_id: counter.preamble.id for counter in p4info.direct_counters}
        self.tables = {t.preamble.id: self._table(t, direct.get(t.preamble.id)) for t in p4info.tables}
        self.counters = {c.preamble.id: self._counter(c) for c in p4info.counters}
        self.registers = {r.preamble.id: self._register(r) for r in p4info.registers}
        self.packet_in, self.packet_out = (
            self._packet_metadata(name) for name in ("packet_in", "packet_out")
        )
        if p4info.action_profiles:
            name = p4info.action_profiles[0].preamble.name
            raise unimplemented(f"action profile {name}: the embedded switch has no action profiles")
        if p4info.meters or p4info.direct_meters:
            name = [*p4info.meters, *p4info.direct_meters][0].preamble.name
            raise unimplemented(f"meter {name}: the embedded switch has no meters")

    def _table(self, table: p4i.Table, direct_counter: int | None) -> TableInfo:
        name = table.preamble.name
        json = self.program.tables_by_name.get(name)
        if json is None:
            # The compiler removes tables that nothing can reach, but leaves them in the P4Info.
            raise invalid_argument(f"table {name} is not in the device config: {_ONE_PROGRAM}")
        positions = {key.name: index for index, key in enumerate(json.keys)}
        if len(table.match_fields) != len(json.keys):
            raise invalid_argument(
                f"table {name} has {len(table.match_fields)} match fields in the P4Info and {len(json.keys)} "
                f"in the device config: {_ONE_PROGRAM}"
            )
        fields = []
        for index, field in enumerate(table.match_fields):
            position = positions.get(field.name, index)
            key = json.keys[position]
            self._check_field(name, field, key)
            fields.append(MatchField(field.id, field.name, field.bitwidth, field.match_type, position))
        actions = {}
        for ref in table.action_refs:
            actions[ref.id] = self._action(table, json, ref)
        return TableInfo(
            id=table.preamble.id,
            name=name,
            json_id=json.id,
            fields=tuple(fields),
            widths=tuple(key.width for key in json.keys),
            actions=actions,
            needs_priority=any(f.match_type in (TERNARY, RANGE, OPTIONAL) for f in fields),
            constant=table.is_const_table,
            const_default=bool(table.const_default_action_id),
            direct_counter=direct_counter,
            default_json_action=json.default_action_id,
            default_data=json.default_data,
        )

    @staticmethod
    def _check_field(table: str, field: p4i.MatchField, key) -> None:
        what = f"table {table}, field {field.name}"
        kinds = _JSON_MATCH_TYPES.get(field.match_type)
        if kinds is None:
            raise unimplemented(f"{what}: the match type is not supported")
        if field.bitwidth == 0:
            raise unimplemented(f"{what}: translated (string) values are not supported")
        if key.width != field.bitwidth or key.match_type not in kinds:
            raise invalid_argument(
                f"{what}: {field.bitwidth} bits in the P4Info, {key.width} bits and {key.match_type} match "
                f"in the device config: {_ONE_PROGRAM}"
            )

    def _action(self, table: p4i.Table, json_table, ref: p4i.ActionRef) -> ActionInfo:
        what = f"table {table.preamble.name}"
        action = self._actions.get(ref.id)
        if action is None:
            raise invalid_argument(f"{what}: the P4Info has no action with id {ref.id:#x}")
        name = action.preamble.name
        try:
            json = self.program.action_of(json_table, name)
        except KeyError:
            text = f"{what} has no action {name} in the device config: {_ONE_PROGRAM}"
            raise invalid_argument(text) from None
        params = tuple(Param(p.id, p.name, p.bitwidth) for p in action.params)
        if [p.width for p in params] != [p.width for p in json.params]:
            raise invalid_argument(f"the parameters of action {name} differ: {_ONE_PROGRAM}")
        return ActionInfo(
            id=ref.id,
            name=name,
            json_id=json.id,
            params=params,
            in_entries=ref.scope != p4i.ActionRef.DEFAULT_ONLY,
            as_default=ref.scope != p4i.ActionRef.TABLE_ONLY,
        )

    def _counter(self, counter: p4i.Counter) -> ArrayInfo:
        name = counter.preamble.name
        json = self.program.counters_by_name.get(name)
        if json is None or json.direct_table is not None:
            raise invalid_argument(f"counter {name} is not in the device config: {_ONE_PROGRAM}")
        return ArrayInfo(counter.preamble.id, name, json.id, json.size)

    def _register(self, register: p4i.Register) -> ArrayInfo:
        name = register.preamble.name
        json = self.program.registers_by_name.get(name)
        if json is None:
            raise invalid_argument(f"register {name} is not in the device config: {_ONE_PROGRAM}")
        bits = register.type_spec.bitstring
        plain = bits.WhichOneof("type_spec") == "bit" and bits.bit.bitwidth == json.width
        return ArrayInfo(register.preamble.id, name, json.id, json.size, json.width if plain else 0)

    def _packet_metadata(self, name: str) -> PacketMetadata:
        for header in self.p4info.controller_packet_metadata:
            if header.preamble.name != name:
                continue
            fields = tuple(Param(m.id, m.name, m.bitwidth) for m in header.metadata)
            if any(f.width == 0 for f in fields):
                raise unimplemented(f"controller header {name}: translated (string) values are not supported")
            if sum(f.width for f in fields) % 8:
                raise invalid_argument(f"controller header {name}: its fields do not fill whole bytes")
            return PacketMetadata(fields)
        return PacketMetadata(())

    def table(self, table_id: int) -> TableInfo:
        return _lookup(self.tables, table_id, "table")

    def counter(self, counter_id: int) -> ArrayInfo:
        return _lookup(self.counters, counter_id, "counter")

    def register(self, register_id: int) -> ArrayInfo:
        return _lookup(self.registers, register_id, "register")


def _lookup(objects: dict, object_id: int, what: str):
    found = objects.get(object_id)
    if found is None:
        raise not_found(f"the program has no {what} with id {object_id:#x}")
    return found
