"""A small synchronous P4Runtime client for tests: names from P4Info, integers for values."""

import queue
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import grpc
from finsy.proto import U128, p4i, p4r, p4r_grpc
from google.protobuf import text_format

from packets.entries import Entry, Group, TableEntry, UnknownStations

TIMEOUT_S = 30.0


def canonical(value: int) -> bytes:
    """P4Runtime's canonical byte string: big-endian, as short as possible."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


class P4Runtime:
    """The primary controller of one switch, for as long as a ``with`` block runs.

    Raises:
        grpc.RpcError: the switch refuses something.
    """

    def __init__(self, address: str, device_id: int, p4info: Path, program: Path) -> None:
        self._device_id = device_id
        self._election_id = U128.encode(1)
        self._program = program.read_bytes()
        self._info = text_format.Parse(p4info.read_text(), p4i.P4Info())
        self._tables = {table.preamble.alias: table for table in self._info.tables}
        self._actions = {action.preamble.alias: action for action in self._info.actions}
        self._counters = {counter.preamble.alias: counter for counter in self._info.counters}
        self._channel = grpc.insecure_channel(address)
        self._requests: queue.SimpleQueue[p4r.StreamMessageRequest | None] = queue.SimpleQueue()

    def __enter__(self) -> "P4Runtime":
        grpc.channel_ready_future(self._channel).result(timeout=TIMEOUT_S)
        self._stub = p4r_grpc.P4RuntimeStub(self._channel)
        self._stream = self._stub.StreamChannel(iter(self._requests.get, None))
        arbitration = p4r.MasterArbitrationUpdate(device_id=self._device_id, election_id=self._election_id)
        self._requests.put(p4r.StreamMessageRequest(arbitration=arbitration))
        answer = next(self._stream).arbitration
        assert answer.status.code == 0, f"not the primary controller: {answer}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._requests.put(None)
        self._channel.close()

    def push_program(self) -> None:
        """Loads the program, which begins with empty tables, registers and counters."""
        self._stub.SetForwardingPipelineConfig(
            p4r.SetForwardingPipelineConfigRequest(
                device_id=self._device_id,
                election_id=self._election_id,
                action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                config=p4r.ForwardingPipelineConfig(p4info=self._info, p4_device_config=self._program),
            ),
            timeout=TIMEOUT_S,
        )

    def write(self, *entries: Entry, update: p4r.Update.Type.ValueType = p4r.Update.INSERT) -> None:
        """Writes all entries in one request."""
        updates = []
        for entry in entries:
            # A default action is always there, so that it can only be modified.
            default = isinstance(entry, UnknownStations)
            kind = p4r.Update.MODIFY if default else update
            updates.append(p4r.Update(type=kind, entity=self._entity(entry)))
        self._stub.Write(
            p4r.WriteRequest(device_id=self._device_id, election_id=self._election_id, updates=updates),
            timeout=TIMEOUT_S,
        )

    def delete_groups(self) -> None:
        """Deletes all multicast groups; not every switch forgets them when a program is pushed."""
        wildcard = p4r.PacketReplicationEngineEntry(multicast_group_entry=p4r.MulticastGroupEntry())
        found = list(self._read(p4r.Entity(packet_replication_engine_entry=wildcard)))
        self._stub.Write(
            p4r.WriteRequest(
                device_id=self._device_id,
                election_id=self._election_id,
                updates=[p4r.Update(type=p4r.Update.DELETE, entity=entity) for entity in found],
            ),
            timeout=TIMEOUT_S,
        )

    def read_counter(self, name: str) -> dict[int, tuple[int, int]]:
        """Packets and bytes of the counter's cells that are not zero, by index."""
        all_cells = p4r.CounterEntry(counter_id=self._counters[name].preamble.id)
        cells = {}
        for entity in self._read(p4r.Entity(counter_entry=all_cells)):
            data = entity.counter_entry.data
            if data.packet_count or data.byte_count:
                cells[entity.counter_entry.index.index] = (data.packet_count, data.byte_count)
        return cells

    def read_direct_counters(self, table: str) -> dict[tuple[int, ...], tuple[int, int]]:
        """Packets and bytes of each entry of a table, by the entry's key."""
        wildcard = p4r.TableEntry(table_id=self._tables[table].preamble.id, counter_data=p4r.CounterData())
        counters = {}
        for entity in self._read(p4r.Entity(table_entry=wildcard)):
            entry = entity.table_entry
            fields = sorted(entry.match, key=lambda field: field.field_id)
            key = tuple(int.from_bytes(field.exact.value, "big") for field in fields)
            counters[key] = (entry.counter_data.packet_count, entry.counter_data.byte_count)
        return counters

    def _read(self, *entities: p4r.Entity) -> Iterator[p4r.Entity]:
        request = p4r.ReadRequest(device_id=self._device_id, entities=entities)
        for response in self._stub.Read(request, timeout=TIMEOUT_S):
            yield from response.entities

    def _entity(self, entry: Entry) -> p4r.Entity:
        match entry:
            case Group(number=number, replicas=replicas):
                copies = [p4r.Replica(egress_port=port, instance=instance) for port, instance in replicas]
                group = p4r.MulticastGroupEntry(multicast_group_id=number, replicas=copies)
                replication = p4r.PacketReplicationEngineEntry(multicast_group_entry=group)
                return p4r.Entity(packet_replication_engine_entry=replication)
            case UnknownStations(group=group):
                action = self._action("flood", {"group": group}) if group else self._action("drop", {})
                table = self._tables["forward"].preamble.id
                default = p4r.TableEntry(table_id=table, action=action, is_default_action=True)
                return p4r.Entity(table_entry=default)
            case TableEntry():
                table = self._tables[entry.table]
                fields = {field.name: field.id for field in table.match_fields}
                match = [
                    p4r.FieldMatch(
                        field_id=fields[name], exact=p4r.FieldMatch.Exact(value=canonical(value))
                    )
                    for name, value in entry.match.items()
                ]
                action = self._action(entry.action, entry.params)
                return p4r.Entity(
                    table_entry=p4r.TableEntry(table_id=table.preamble.id, match=match, action=action)
                )
        raise TypeError(f"not an entry: {entry!r}")

    def _action(self, name: str, values: dict[str, int]) -> p4r.TableAction:
        action = self._actions[name]
        assert {param.name for param in action.params} == values.keys(), f"parameters of {name}: {values}"
        params = [
            p4r.Action.Param(param_id=param.id, value=canonical(values[param.name]))
            for param in action.params
        ]
        return p4r.TableAction(action=p4r.Action(action_id=action.preamble.id, params=params))
