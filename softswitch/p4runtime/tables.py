"""Table entries, default entries and their direct counters (TableEntry, DirectCounterEntry).

Entries are kept here as their canonical messages; the data plane knows them by handle.  Counters are
always read from the data plane.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..instance import Instance
from ..pipeline_abi import ProgramError
from .errors import (
    already_exists,
    from_program,
    invalid_argument,
    not_found,
    permission_denied,
    unimplemented,
)
from .protos import p4r
from .schema import EXACT, LPM, OPTIONAL, RANGE, TERNARY, ActionInfo, MatchField, Schema, TableInfo
from .values import decode, encode, ones, pad

INSERT = p4r.Update.INSERT
MODIFY = p4r.Update.MODIFY
DELETE = p4r.Update.DELETE

_DEFAULT_HANDLE = 0

Key = tuple[tuple[int, ...], tuple[int, ...], int]
"""Values and masks in the order of the P4Info's fields, and the priority."""


@dataclass
class _Entry:
    message: p4r.TableEntry
    """Canonical, without counter data."""
    handle: int | None
    """None: an entry of the program itself, which the data plane does not name."""


class Tables:
    """All tables of one loaded program."""

    def __init__(self, schema: Schema, instance: Instance):
        self._schema = schema
        self._instance = instance
        self._entries: dict[int, dict[Key, _Entry]] = {table_id: {} for table_id in schema.tables}
        self._defaults: dict[int, _Entry] = {}
        for table in schema.tables.values():
            self._add_initial_entries(table)
            self._defaults[table.id] = _Entry(self._initial_default(table), _DEFAULT_HANDLE)

    # --- Writing --------------------------------------------------------------------------------

    def write(self, update: int, entry: p4r.TableEntry) -> None:
        """Raises P4RuntimeError and changes nothing if the update is refused."""
        table = self._schema.table(entry.table_id)
        if entry.is_const:
            raise invalid_argument(f"table {table.name}: is_const is for the switch to set")
        if update != DELETE:
            self._check_resources(table, entry)
        if entry.is_default_action:
            self._write_default(table, update, entry)
        elif update == INSERT:
            self._insert(table, entry)
        elif update == MODIFY:
            self._modify(table, entry)
        else:
            self._delete(table, entry)

    @staticmethod
    def _check_resources(table: TableInfo, entry: p4r.TableEntry) -> None:
        if entry.HasField("counter_data") and table.direct_counter is None:
            raise invalid_argument(f"table {table.name} has no direct counter")
        if entry.counter_data.packet_count < 0 or entry.counter_data.byte_count < 0:
            raise invalid_argument(f"table {table.name}: a counter is not negative")
        if entry.HasField("meter_config") or entry.HasField("meter_counter_data"):
            raise invalid_argument(f"table {table.name} has no direct meter")
        if entry.idle_timeout_ns:
            raise invalid_argument(f"table {table.name} does not support idle timeouts")

    def _insert(self, table: TableInfo, entry: p4r.TableEntry) -> None:
        if table.constant:
            raise permission_denied(f"table {table.name} is constant")
        if not table.fields:
            raise invalid_argument(f"table {table.name} has no key: only its default entry can be set")
        key = self._key(table, entry)
        if key in self._entries[table.id]:
            raise already_exists(f"table {table.name} has an entry with this match and priority")
        action, arguments = self._action(table, entry, default=False)
        try:
            handle = self._instance.table_insert(
                table.json_id, *self._layout(table, key), key[2], action.json_id, _data(action, arguments)
            )
        except ProgramError as error:
            raise from_program(error, f"table {table.name}") from None
        if entry.HasField("counter_data"):
            self._set_counter(table, handle, entry.counter_data)
        self._entries[table.id][key] = _Entry(self._canonical(table, key, action, arguments, entry), handle)

    def _modify(self, table: TableInfo, entry: p4r.TableEntry) -> None:
        key = self._key(table, entry)
        present = self._find(table, key)
        if table.constant or present.handle is None:
            if entry.HasField("action") or not entry.HasField("counter_data"):
                raise permission_denied(f"table {table.name}: the program's own entries are constant")
            self._set_counter(table, self._counter_handle(table, present), entry.counter_data)
            return
        message = p4r.TableEntry()
        message.CopyFrom(present.message)
        message.controller_metadata = entry.controller_metadata
        message.metadata = entry.metadata
        if entry.HasField("action"):
            action, arguments = self._action(table, entry, default=False)
            self._call(table, "table_modify", present.handle, action.json_id, _data(action, arguments))
            message = self._canonical(table, key, action, arguments, entry)
        present.message = message
        if entry.HasField("counter_data"):
            self._set_counter(table, present.handle, entry.counter_data)

    def _delete(self, table: TableInfo, entry: p4r.TableEntry) -> None:
        if table.constant:
            raise permission_denied(f"table {table.name} is constant")
        key = self._key(table, entry)
        present = self._find(table, key)
        if present.handle is None:
            raise permission_denied(f"table {table.name}: the program's own entries are constant")
        self._call(table, "table_delete", present.handle)
        del self._entries[table.id][key]

    def _write_default(self, table: TableInfo, update: int, entry: p4r.TableEntry) -> None:
        if update != MODIFY:
            raise invalid_argument(f"table {table.name}: a default entry can only be modified")
        if entry.match or entry.priority:
            raise invalid_argument(f"table {table.name}: a default entry has no match and no priority")
        if table.const_default:
            if entry.HasField("action") or not entry.HasField("counter_data"):
                raise permission_denied(f"table {table.name}: its default action is constant")
        elif entry.HasField("action"):
            action, arguments = self._action(table, entry, default=True)
            self._call(table, "table_set_default", action.json_id, _data(action, arguments))
            message = p4r.TableEntry(
                table_id=table.id,
                is_default_action=True,
                controller_metadata=entry.controller_metadata,
                metadata=entry.metadata,
            )
            message.action.action.CopyFrom(_action_message(action, arguments))
            self._defaults[table.id].message = message
        else:
            self._call(table, "table_reset_default")
            self._defaults[table.id].message = self._initial_default(table)
            if table.direct_counter is not None:
                self._set_counter(table, _DEFAULT_HANDLE, p4r.CounterData())
        if entry.HasField("counter_data"):
            self._set_counter(table, _DEFAULT_HANDLE, entry.counter_data)

    def _call(self, table: TableInfo, operation: str, *arguments) -> None:
        try:
            getattr(self._instance, operation)(table.json_id, *arguments)
        except ProgramError as error:
            raise from_program(error, f"table {table.name}") from None

    def _find(self, table: TableInfo, key: Key) -> _Entry:
        present = self._entries[table.id].get(key)
        if present is None:
            raise not_found(f"table {table.name} has no entry with this match and priority")
        return present

    # --- Keys and actions -----------------------------------------------------------------------

    def _key(self, table: TableInfo, entry: p4r.TableEntry) -> Key:
        if table.needs_priority and entry.priority <= 0:
            raise invalid_argument(f"table {table.name}: entries need a priority above 0")
        if not table.needs_priority and entry.priority:
            raise invalid_argument(f"table {table.name}: its entries have no priority")
        values, masks = self._match(table, entry)
        return values, masks, entry.priority

    @staticmethod
    def _match(table: TableInfo, entry: p4r.TableEntry) -> tuple[tuple[int, ...], tuple[int, ...]]:
        given: dict[int, p4r.FieldMatch] = {}
        known = {field.id for field in table.fields}
        for match in entry.match:
            if match.field_id not in known:
                raise invalid_argument(f"table {table.name} has no match field with id {match.field_id}")
            if match.field_id in given:
                raise invalid_argument(f"table {table.name}: match field {match.field_id} is given twice")
            given[match.field_id] = match
        pairs = [_field_match(table, field, given.get(field.id)) for field in table.fields]
        return tuple(value for value, _ in pairs), tuple(mask for _, mask in pairs)

    @staticmethod
    def _layout(table: TableInfo, key: Key) -> tuple[bytes, bytes]:
        values, masks = [0] * len(table.fields), [0] * len(table.fields)
        for field, value, mask in zip(table.fields, key[0], key[1], strict=True):
            values[field.position], masks[field.position] = value, mask
        return table.pack(values), table.pack(masks)

    @staticmethod
    def _action(table: TableInfo, entry: p4r.TableEntry, *, default: bool) -> tuple[ActionInfo, list[int]]:
        kind = entry.action.WhichOneof("type")
        if kind != "action":
            what = "needs an action" if kind is None else f"is a direct table: {kind} does not apply"
            raise invalid_argument(f"table {table.name} {what}")
        call = entry.action.action
        action = table.actions.get(call.action_id)
        if action is None:
            raise invalid_argument(f"table {table.name} has no action with id {call.action_id:#x}")
        if default and not action.as_default:
            raise permission_denied(f"table {table.name}: {action.name} is not for the default entry")
        if not default and not action.in_entries:
            raise permission_denied(f"table {table.name}: {action.name} is for the default entry only")
        given: dict[int, bytes] = {}
        for param in call.params:
            if param.param_id in given:
                raise invalid_argument(f"action {action.name}: parameter {param.param_id} is given twice")
            given[param.param_id] = param.value
        arguments = []
        for param in action.params:
            if param.id not in given:
                raise invalid_argument(f"action {action.name}: parameter {param.name} is missing")
            value = given.pop(param.id)
            arguments.append(decode(value, param.width, f"action {action.name}, parameter {param.name}"))
        if given:
            raise invalid_argument(f"action {action.name} has no parameter with id {min(given)}")
        return action, arguments

    @staticmethod
    def _canonical(
        table: TableInfo, key: Key, action: ActionInfo, arguments: list[int], entry: p4r.TableEntry
    ) -> p4r.TableEntry:
        message = _key_message(table, key)
        message.controller_metadata = entry.controller_metadata
        message.metadata = entry.metadata
        message.action.action.CopyFrom(_action_message(action, arguments))
        return message

    # --- What the program brings along ----------------------------------------------------------

    def _add_initial_entries(self, table: TableInfo) -> None:
        entries = self._schema.program.tables[table.json_id].entries
        # Constant Tables: the first of N entries has priority N, the last 1.
        ranks = {p: n for n, p in enumerate(sorted({e.priority for e in entries}), 1)}
        for entry in entries:
            values = tuple(entry.values[field.position] for field in table.fields)
            masks = tuple(entry.masks[field.position] for field in table.fields)
            key = (values, masks, ranks[entry.priority] if table.needs_priority else 0)
            message = _key_message(table, key)
            message.is_const = True
            action = table.action_by_json_id(entry.action_id)
            if action is not None:
                message.action.action.CopyFrom(_action_message(action, list(entry.data)))
            self._entries[table.id][key] = _Entry(message, None)

    @staticmethod
    def _initial_default(table: TableInfo) -> p4r.TableEntry:
        message = p4r.TableEntry(table_id=table.id, is_default_action=True, is_const=table.const_default)
        if table.default_json_action is not None:
            action = table.action_by_json_id(table.default_json_action)
            if action is not None:
                message.action.action.CopyFrom(_action_message(action, list(table.default_data)))
        return message

    # --- Reading --------------------------------------------------------------------------------

    def read(self, wanted: p4r.TableEntry) -> Iterator[p4r.TableEntry]:
        """The entries that ``wanted`` selects (Wildcard Reads)."""
        if wanted.HasField("meter_config") or wanted.HasField("meter_counter_data"):
            raise invalid_argument("the embedded switch has no meters")
        for table in self._selected_tables(wanted):
            for entry in self._select(table, wanted):
                message = p4r.TableEntry()
                message.CopyFrom(entry.message)
                if wanted.HasField("counter_data") and table.direct_counter is not None and _counted(entry):
                    message.counter_data.CopyFrom(self._counter(table, entry))
                yield message

    def _selected_tables(self, wanted: p4r.TableEntry) -> list[TableInfo]:
        if wanted.table_id:
            return [self._schema.table(wanted.table_id)]
        if wanted.match or wanted.priority or wanted.HasField("action"):
            raise invalid_argument("table_id 0 reads all tables: no match, priority or action then")
        return list(self._schema.tables.values())

    def _select(self, table: TableInfo, wanted: p4r.TableEntry) -> list[_Entry]:
        if wanted.is_default_action:
            if wanted.match or wanted.priority:
                raise invalid_argument(f"table {table.name}: a default entry has no match and no priority")
            entries = [self._defaults[table.id]]
        else:
            found = self._entries[table.id].items()
            match = self._match(table, wanted) if wanted.match else None
            entries = [
                entry
                for key, entry in found
                if (match is None or key[:2] == match) and wanted.priority in (0, key[2])
            ]
        if wanted.HasField("action"):
            action_id = wanted.action.action.action_id
            if action_id not in table.actions:
                raise invalid_argument(f"table {table.name} has no action with id {action_id:#x}")
            entries = [e for e in entries if e.message.action.action.action_id == action_id]
        if wanted.controller_metadata:
            entries = [e for e in entries if e.message.controller_metadata == wanted.controller_metadata]
        if wanted.metadata:
            entries = [e for e in entries if e.message.metadata == wanted.metadata]
        return entries

    # --- Direct counters ------------------------------------------------------------------------

    def read_direct_counters(self, wanted: p4r.TableEntry) -> Iterator[p4r.DirectCounterEntry]:
        tables = [t for t in self._selected_tables(wanted) if t.direct_counter is not None]
        if wanted.table_id and not tables:
            raise invalid_argument(f"table {self._schema.table(wanted.table_id).name} has no direct counter")
        for table in tables:
            entries = self._select(table, wanted)
            if wanted.match and not entries:
                raise not_found(f"table {table.name} has no entry with this match")
            for entry in entries:
                if not _counted(entry):
                    continue
                reply = p4r.DirectCounterEntry(data=self._counter(table, entry))
                reply.table_entry.table_id = table.id
                reply.table_entry.match.extend(entry.message.match)
                reply.table_entry.priority = entry.message.priority
                reply.table_entry.is_default_action = entry.message.is_default_action
                yield reply

    def write_direct_counter(self, update: int, wanted: p4r.DirectCounterEntry) -> None:
        if update != MODIFY:
            raise invalid_argument("a direct counter can only be modified")
        table = self._schema.table(wanted.table_entry.table_id)
        if table.direct_counter is None:
            raise invalid_argument(f"table {table.name} has no direct counter")
        if wanted.table_entry.is_default_action:
            entry = self._defaults[table.id]
        else:
            entry = self._find(table, self._key(table, wanted.table_entry))
        if wanted.HasField("data"):
            self._set_counter(table, self._counter_handle(table, entry), wanted.data)

    @staticmethod
    def _counter_handle(table: TableInfo, entry: _Entry) -> int:
        if entry.handle is None:
            raise unimplemented(f"table {table.name}: counters of the program's own entries are not kept")
        return entry.handle

    def _counter(self, table: TableInfo, entry: _Entry) -> p4r.CounterData:
        handle = self._counter_handle(table, entry)
        try:
            packets, byte_count = self._instance.table_counter_read(table.json_id, handle)
        except ProgramError as error:
            raise from_program(error, f"table {table.name}") from None
        return p4r.CounterData(packet_count=packets, byte_count=byte_count)

    def _set_counter(self, table: TableInfo, handle: int, data: p4r.CounterData) -> None:
        if data.packet_count < 0 or data.byte_count < 0:
            raise invalid_argument(f"table {table.name}: a counter is not negative")
        self._call(table, "table_counter_write", handle, data.packet_count, data.byte_count)


def _counted(entry: _Entry) -> bool:
    return entry.handle is not None


def _data(action: ActionInfo, arguments: list[int]) -> bytes:
    return b"".join(pad(value, p.width) for value, p in zip(arguments, action.params, strict=True))


def _action_message(action: ActionInfo, arguments: list[int]) -> p4r.Action:
    message = p4r.Action(action_id=action.id)
    for param, value in zip(action.params, arguments, strict=True):
        message.params.add(param_id=param.id, value=encode(value))
    return message


def _field_match(table: TableInfo, field: MatchField, match: p4r.FieldMatch | None) -> tuple[int, int]:
    """Value and mask of one field (Match Format); an omitted field matches everything."""
    what = f"table {table.name}, field {field.name}"
    full = ones(field.width)
    if match is None:
        if field.match_type == EXACT:
            raise invalid_argument(f"{what}: an exact match cannot be omitted")
        return (0, full) if field.match_type == RANGE else (0, 0)
    kind = match.WhichOneof("field_match_type")
    if kind != _KINDS[field.match_type]:
        raise invalid_argument(f"{what}: it is a match of type {_KINDS[field.match_type]}, not {kind}")
    if field.match_type in (EXACT, OPTIONAL):
        return decode(getattr(match, kind).value, field.width, what), full
    if field.match_type == LPM:
        length = match.lpm.prefix_len
        if not 0 < length <= field.width:
            raise invalid_argument(f"{what}: a prefix has 1 to {field.width} bits; omit it to match all")
        value, mask = decode(match.lpm.value, field.width, what), full ^ ones(field.width - length)
    elif field.match_type == TERNARY:
        value = decode(match.ternary.value, field.width, what)
        mask = decode(match.ternary.mask, field.width, what)
        if mask == 0:
            raise invalid_argument(f"{what}: the mask is 0; omit the field to match all")
    else:
        low, high = decode(match.range.low, field.width, what), decode(match.range.high, field.width, what)
        if low > high:
            raise invalid_argument(f"{what}: the range ends before it begins")
        if (low, high) == (0, full):
            raise invalid_argument(f"{what}: the range holds every value; omit the field to match all")
        return low, high
    if value & ~mask:
        raise invalid_argument(f"{what}: bits outside the mask must be 0")
    return value, mask


_KINDS = {EXACT: "exact", LPM: "lpm", TERNARY: "ternary", RANGE: "range", OPTIONAL: "optional"}


def _key_message(table: TableInfo, key: Key) -> p4r.TableEntry:
    message = p4r.TableEntry(table_id=table.id, priority=key[2])
    for field, value, mask in zip(table.fields, key[0], key[1], strict=True):
        full = ones(field.width)
        if field.match_type == EXACT:
            message.match.add(field_id=field.id).exact.value = encode(value)
        elif field.match_type == RANGE:
            if (value, mask) != (0, full):
                message.match.add(field_id=field.id).range.MergeFrom(
                    p4r.FieldMatch.Range(low=encode(value), high=encode(mask))
                )
        elif mask == 0:
            continue
        elif field.match_type == LPM:
            message.match.add(field_id=field.id).lpm.MergeFrom(
                p4r.FieldMatch.LPM(value=encode(value), prefix_len=mask.bit_count())
            )
        elif field.match_type == TERNARY:
            message.match.add(field_id=field.id).ternary.MergeFrom(
                p4r.FieldMatch.Ternary(value=encode(value), mask=encode(mask))
            )
        else:
            message.match.add(field_id=field.id).optional.value = encode(value)
    return message
