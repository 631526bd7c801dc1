"""Table entries, counters, registers, multicast groups and clone sessions: what is accepted, what comes
back, and what the data plane then does."""

import grpc
import pytest
from finsy.proto import p4d, p4r
from p4rt_client import (
    DELETE,
    INSERT,
    MODIFY,
    SOON,
    Controller,
    action,
    details,
    exact,
    forward,
    lpm,
    object_id,
    optional,
    pipeline_config,
    range_match,
    serving,
    table_entry,
    ternary,
)

from netreduce.softswitch.shm_client import ShmPort

INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED = 3, 5, 6, 7
RESOURCE_EXHAUSTED, OUT_OF_RANGE, UNIMPLEMENTED = 8, 11, 12

DROP = action("drop")
NOTHING = action("NoAction")
LABEL = action("label", value=5, address=6)


@pytest.fixture
def switch():
    with serving() as (core, _, address):
        core.allow_shm_ports(1, 8)
        core.listen(f"@{address}")
        client = Controller(address)
        try:
            client.arbitrate()
            client.set_pipeline(config=pipeline_config())
            client.socket = f"@{address}"
            yield client
        finally:
            client.close()


def fails(code: int, text: str, call, *arguments) -> None:
    """One update or read alone fails with this canonical code and a message that has ``text``."""
    with pytest.raises(grpc.RpcError) as failure:
        call(*arguments)
    (error,) = details(failure.value)
    assert error.canonical_code == code, error
    assert text in error.message


def classify(*match: p4r.FieldMatch, priority: int = 1, **fields) -> p4r.TableEntry:
    fields.setdefault("action", LABEL)
    return table_entry("classify", *match, priority=priority, **fields)


def route(*match: p4r.FieldMatch, **fields) -> p4r.TableEntry:
    fields.setdefault("action", LABEL)
    return table_entry("route", *match, **fields)


# --- Matches ----------------------------------------------------------------------------------------

ACCEPTED = {
    "exact": forward(0x0200000000AB, 9),
    "lpm": route(lpm(1, 0x0A000000, 8)),
    "lpm of all bits": route(lpm(1, 0x0A0000FF, 32)),
    "lpm omitted": route(),
    "all kinds": classify(
        exact(1, 1), ternary(2, 0xF0, 0xFF0), range_match(3, 100, 200), optional(4, 7), priority=10
    ),
    "all omitted but exact": classify(exact(1, 0), priority=2**31 - 1),
    "range to the end": classify(exact(1, 0), range_match(3, 0, 0xFFFE)),
    "metadata": forward(1, 1, metadata=b"\x00\xff", controller_metadata=2**64 - 1),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_read_returns_what_was_written(switch, name: str) -> None:
    entry = ACCEPTED[name]
    switch.insert(entry)
    assert switch.read(p4r.TableEntry(table_id=entry.table_id)) == [entry]
    assert switch.read(entry) == [entry]
    fails(ALREADY_EXISTS, "has an entry", switch.insert, entry)
    switch.write(
        (DELETE, p4r.TableEntry(table_id=entry.table_id, match=entry.match, priority=entry.priority))
    )
    assert switch.read(p4r.TableEntry(table_id=entry.table_id)) == []
    fails(NOT_FOUND, "no entry", switch.write, (DELETE, entry))
    fails(NOT_FOUND, "no entry", switch.write, (MODIFY, entry))


NOT_CANONICAL = {
    "leading zeros": (
        table_entry("forward", exact(1, bytes(20) + b"\x05"), action=action("to_port", port=b"\0\0\0\1")),
        forward(5, 1),
    ),
    "zero": (
        table_entry("forward", exact(1, bytes(6)), action=action("to_port", port=b"\0\0")),
        forward(0, 0),
    ),
    "lpm": (route(lpm(1, b"\0\x0a\0\0\0", 8)), route(lpm(1, 0x0A000000, 8))),
    "fields in another order": (
        classify(optional(4, 7), ternary(2, b"\0\x10", b"\0\xf0"), exact(1, b"\0\1")),
        classify(exact(1, 1), ternary(2, 0x10, 0xF0), optional(4, 7)),
    ),
}


@pytest.mark.parametrize("name", NOT_CANONICAL)
def test_other_spellings_are_accepted_and_come_back_canonical(switch, name: str) -> None:
    written, canonical = NOT_CANONICAL[name]
    switch.insert(written)
    assert switch.read(p4r.TableEntry(table_id=written.table_id)) == [canonical]
    fails(ALREADY_EXISTS, "", switch.insert, canonical)


REFUSED = {
    "unknown table": (NOT_FOUND, "no table", p4r.TableEntry(table_id=1, action=DROP)),
    "table 0": (NOT_FOUND, "no table", p4r.TableEntry(action=DROP)),
    "value too wide": (OUT_OF_RANGE, "48 bits", table_entry("forward", exact(1, 1 << 48), action=DROP)),
    "empty value": (OUT_OF_RANGE, "empty", table_entry("forward", exact(1, b""), action=DROP)),
    "parameter too wide": (OUT_OF_RANGE, "9 bits", forward(1, 512)),
    "exact omitted": (INVALID_ARGUMENT, "cannot be omitted", table_entry("forward", action=DROP)),
    "unknown field": (
        INVALID_ARGUMENT,
        "no match field with id 2",
        table_entry("forward", exact(1, 1), exact(2, 1), action=DROP),
    ),
    "field twice": (
        INVALID_ARGUMENT,
        "twice",
        table_entry("forward", exact(1, 1), exact(1, 1), action=DROP),
    ),
    "other kind of match": (
        INVALID_ARGUMENT,
        "type exact, not ternary",
        table_entry("forward", ternary(1, 1, 1), action=DROP),
    ),
    "no kind of match": (
        INVALID_ARGUMENT,
        "type exact, not None",
        table_entry("forward", p4r.FieldMatch(field_id=1), action=DROP),
    ),
    "priority where none is": (INVALID_ARGUMENT, "no priority", forward(1, 1, priority=1)),
    "priority missing": (INVALID_ARGUMENT, "need a priority", classify(exact(1, 1), priority=0)),
    "priority negative": (INVALID_ARGUMENT, "need a priority", classify(exact(1, 1), priority=-1)),
    "prefix of 0": (INVALID_ARGUMENT, "omit", route(lpm(1, 0, 0))),
    "prefix too long": (INVALID_ARGUMENT, "1 to 32", route(lpm(1, 0, 33))),
    "prefix negative": (INVALID_ARGUMENT, "1 to 32", route(lpm(1, 0, -1))),
    "bits after the prefix": (INVALID_ARGUMENT, "outside the mask", route(lpm(1, 0x0A000001, 8))),
    "mask 0": (INVALID_ARGUMENT, "omit", classify(exact(1, 1), ternary(2, 0, 0))),
    "bits outside the mask": (
        INVALID_ARGUMENT,
        "outside the mask",
        classify(exact(1, 1), ternary(2, 3, 1)),
    ),
    "mask too wide": (OUT_OF_RANGE, "12 bits", classify(exact(1, 1), ternary(2, 0, 0x1000))),
    "range backwards": (
        INVALID_ARGUMENT,
        "ends before it begins",
        classify(exact(1, 1), range_match(3, 2, 1)),
    ),
    "range of everything": (INVALID_ARGUMENT, "omit", classify(exact(1, 1), range_match(3, 0, 0xFFFF))),
    "no action": (INVALID_ARGUMENT, "needs an action", table_entry("forward", exact(1, 1))),
    "action of another table": (
        INVALID_ARGUMENT,
        "no action with id",
        table_entry("forward", exact(1, 1), action=LABEL),
    ),
    "unknown action": (
        INVALID_ARGUMENT,
        "no action with id 0x1",
        table_entry("forward", exact(1, 1), action=p4r.TableAction(action=p4r.Action(action_id=1))),
    ),
    "action profile member": (
        INVALID_ARGUMENT,
        "direct table",
        table_entry("forward", exact(1, 1), action=p4r.TableAction(action_profile_member_id=1)),
    ),
    "parameter missing": (
        INVALID_ARGUMENT,
        "parameter port is missing",
        table_entry("forward", exact(1, 1), action=action("to_port")),
    ),
    "default-only action": (
        PERMISSION_DENIED,
        "default entry only",
        table_entry("forward", exact(1, 1), action=NOTHING),
    ),
    "keyless table": (INVALID_ARGUMENT, "no key", table_entry("keyless", action=LABEL)),
    "constant table": (
        PERMISSION_DENIED,
        "constant",
        table_entry("fixed", ternary(1, 1, 1), priority=1, action=DROP),
    ),
    "counter of a table without": (
        INVALID_ARGUMENT,
        "no direct counter",
        route(lpm(1, 0, 1), counter_data=p4r.CounterData()),
    ),
    "negative counter": (
        INVALID_ARGUMENT,
        "not negative",
        forward(1, 1, counter_data=p4r.CounterData(packet_count=-1)),
    ),
    "meter": (INVALID_ARGUMENT, "no direct meter", forward(1, 1, meter_config=p4r.MeterConfig())),
    "idle timeout": (INVALID_ARGUMENT, "idle timeouts", forward(1, 1, idle_timeout_ns=1)),
    "is_const": (INVALID_ARGUMENT, "is_const", forward(1, 1, is_const=True)),
    "default entry": (
        INVALID_ARGUMENT,
        "only be modified",
        table_entry("forward", is_default_action=True, action=DROP),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_insert_refuses(switch, name: str) -> None:
    code, text, entry = REFUSED[name]
    before = switch.read(p4r.TableEntry())
    fails(code, text, switch.insert, entry)
    assert switch.read(p4r.TableEntry()) == before


def test_extra_and_repeated_parameters(switch) -> None:
    for param_id, text in ((9, "no parameter with id 9"), (1, "given twice")):
        entry = forward(1, 1)
        entry.action.action.params.add(param_id=param_id, value=b"\x01")
        fails(INVALID_ARGUMENT, text, switch.insert, entry)


def test_full_table(switch) -> None:
    for number in range(8):
        switch.insert(forward(number, 1))
    fails(RESOURCE_EXHAUSTED, "forward", switch.insert, forward(8, 1))
    switch.write((DELETE, forward(3, 1)), (INSERT, forward(8, 1)))
    assert len(switch.read(table_entry("forward"))) == 8


def test_modify(switch) -> None:
    switch.insert(forward(1, 1, metadata=b"old"))
    changed = table_entry("forward", exact(1, 1), action=action("to_group", group=9), metadata=b"new")
    switch.write((MODIFY, changed))
    assert switch.read(table_entry("forward")) == [changed]
    # Without an action the action stays; the rest is a snapshot, so metadata goes.
    switch.write((MODIFY, table_entry("forward", exact(1, 1))))
    changed.metadata = b""
    assert switch.read(table_entry("forward")) == [changed]
    fails(OUT_OF_RANGE, "", switch.write, (MODIFY, forward(1, 600)))
    fails(PERMISSION_DENIED, "", switch.write, (MODIFY, table_entry("forward", exact(1, 1), action=NOTHING)))
    assert switch.read(table_entry("forward")) == [changed]


def test_same_match_other_priority_is_another_entry(switch) -> None:
    one, two = (classify(exact(1, 1), priority=p) for p in (1, 2))
    switch.insert(one, two)
    switch.write((DELETE, one))
    assert switch.read(table_entry("classify")) == [two]


# --- Default entries --------------------------------------------------------------------------------


def default(table: str, **fields) -> p4r.TableEntry:
    return table_entry(table, is_default_action=True, **fields)


def test_default_entries(switch) -> None:
    assert switch.read(default("forward")) == [default("forward", action=DROP)]
    changed = default("forward", action=action("to_port", port=4), metadata=b"m")
    switch.write((MODIFY, changed))
    assert switch.read(default("forward")) == [changed]
    assert switch.read(table_entry("forward")) == []  # a default entry is no entry of the table
    switch.write((MODIFY, default("forward", action=NOTHING)))  # default-only action
    assert switch.read(default("forward")) == [default("forward", action=NOTHING)]
    switch.write((MODIFY, default("forward")))
    assert switch.read(default("forward")) == [default("forward", action=DROP)]
    switch.write((MODIFY, default("keyless", action=LABEL)))
    assert switch.read(default("keyless")) == [default("keyless", action=LABEL)]
    for kind in (INSERT, DELETE):
        fails(INVALID_ARGUMENT, "only be modified", switch.write, (kind, default("forward", action=DROP)))


def test_default_entries_refuse(switch) -> None:
    bad = default("forward", action=DROP)
    bad.match.append(exact(1, 1))
    fails(INVALID_ARGUMENT, "no match", switch.write, (MODIFY, bad))
    fails(
        INVALID_ARGUMENT, "no priority", switch.write, (MODIFY, default("forward", action=DROP, priority=1))
    )
    fails(PERMISSION_DENIED, "constant", switch.write, (MODIFY, default("classify", action=NOTHING)))
    fails(PERMISSION_DENIED, "constant", switch.write, (MODIFY, default("classify")))
    assert switch.read(default("classify"))[0].is_const


def test_table_only_action_is_not_a_default(switch) -> None:
    switch.insert(classify(exact(1, 1), action=action("to_cpu")))
    config = pipeline_config()
    table = next(t for t in config.p4info.tables if t.preamble.alias == "classify")
    table.ClearField("const_default_action_id")
    switch.set_pipeline(config=config)
    fails(
        PERMISSION_DENIED,
        "not for the default",
        switch.write,
        (MODIFY, default("classify", action=action("to_cpu"))),
    )


# --- Constant tables --------------------------------------------------------------------------------


def test_entries_of_the_program(switch) -> None:
    first = table_entry("fixed", ternary(1, 0xF, 0xF), priority=2, action=DROP, is_const=True)
    second = table_entry("fixed", ternary(1, 8, 8), priority=1, action=NOTHING, is_const=True)
    assert switch.read(table_entry("fixed")) == [first, second]
    for kind in (MODIFY, DELETE):
        change = table_entry("fixed", ternary(1, 8, 8), priority=1, action=NOTHING)
        fails(PERMISSION_DENIED, "constant", switch.write, (kind, change))
    switch.write((MODIFY, default("fixed", action=DROP)))


# --- Wildcard reads ---------------------------------------------------------------------------------


def test_filters(switch) -> None:
    entries = [
        classify(exact(1, 1), priority=1, metadata=b"a"),
        classify(exact(1, 1), priority=2, action=DROP, controller_metadata=5),
        classify(exact(1, 2), priority=2, metadata=b"a"),
    ]
    switch.insert(*entries, forward(1, 1))

    def read(**fields) -> list[int]:
        match = fields.pop("match", ())
        return [entries.index(e) for e in switch.read(table_entry("classify", *match, **fields))]

    assert read() == [0, 1, 2]
    assert read(priority=2) == [1, 2]
    assert read(match=[exact(1, 1)]) == [0, 1]
    assert read(match=[exact(1, 1)], priority=2) == [1]
    assert read(match=[exact(1, 3)]) == []
    assert read(action=DROP) == [1]
    assert read(metadata=b"a") == [0, 2]
    assert read(controller_metadata=5) == [1]
    assert len(switch.read(p4r.TableEntry())) == 4 + 2  # with the two constant entries
    assert len(switch.read(p4r.TableEntry(is_default_action=True))) == 5
    assert len(switch.read(p4r.TableEntry(metadata=b"a"))) == 2


def test_reads_that_are_refused(switch) -> None:
    fails(INVALID_ARGUMENT, "all tables", switch.read, p4r.TableEntry(priority=1))
    fails(INVALID_ARGUMENT, "no match field", switch.read, table_entry("forward", exact(7, 1)))
    fails(OUT_OF_RANGE, "48 bits", switch.read, table_entry("forward", exact(1, 1 << 48)))
    fails(INVALID_ARGUMENT, "no action", switch.read, table_entry("forward", action=LABEL))
    fails(INVALID_ARGUMENT, "no meters", switch.read, p4r.TableEntry(meter_config=p4r.MeterConfig()))


# --- The data plane does it -------------------------------------------------------------------------


def ethernet(destination: int, payload: bytes = b"payload", ether_type: int = 0x9999) -> bytes:
    return (
        destination.to_bytes(6, "big")
        + bytes.fromhex("020000000001")
        + ether_type.to_bytes(2, "big")
        + payload
    )


def probe(selector=0, small=0, port=0, address=0, label=0, flags=0) -> bytes:
    header = bytes([selector, small]) + port.to_bytes(2, "big") + address.to_bytes(4, "big")
    return ethernet(0xA, header + (label << 4 | flags).to_bytes(2, "big"), 0x88B5)


def pass_through(switch, *frames: bytes) -> list[bytes | None]:
    """Sends probes into port 1 one by one; what leaves port 2 for each, None if it was dropped."""
    end = ethernet(0xE)
    results: list[bytes | None] = []
    switch.insert(forward(0xA, 2), forward(0xE, 2))
    with ShmPort(switch.socket, 1) as a, ShmPort(switch.socket, 2) as b:
        for data in frames:
            a.send(data)
            a.send(end)
            got = b.receive(SOON)
            results.append(None if got == end else got)
            if got != end:
                assert b.receive(SOON) == end
    switch.write((DELETE, forward(0xA, 2)), (DELETE, forward(0xE, 2)))
    return results


def test_longest_prefix_wins(switch) -> None:
    switch.insert(
        route(action=action("label", value=1, address=1)),
        route(lpm(1, 0x0A000000, 8), action=action("label", value=2, address=2)),
        route(lpm(1, 0x0A0B0000, 16), action=action("label", value=3, address=3)),
        route(lpm(1, 0x0A0B0C0D, 32), action=action("label", value=4, address=4)),
    )
    addresses = (0x01020304, 0x0A010101, 0x0A0B0101, 0x0A0B0C0D)
    assert pass_through(switch, *(probe(address=a) for a in addresses)) == [
        probe(address=n, label=n) for n in (1, 2, 3, 4)
    ]


def test_ternary_range_and_optional_by_priority(switch) -> None:
    def rule(value: int, *match: p4r.FieldMatch, priority: int) -> p4r.TableEntry:
        return classify(
            exact(1, 1), *match, priority=priority, action=action("label", value=value, address=value)
        )

    switch.insert(
        rule(1, priority=1),
        rule(2, ternary(2, 0x100, 0xF00), priority=2),
        rule(3, range_match(3, 10, 20), priority=3),
        rule(4, optional(4, 9), priority=4),
        rule(5, ternary(2, 0x100, 0xF00), range_match(3, 10, 20), optional(4, 9), priority=5),
    )
    cases = [
        (probe(selector=1), 1),
        (probe(selector=1, label=0x1FF), 2),
        (probe(selector=1, label=0x2FF), 1),
        (probe(selector=1, port=10), 3),
        (probe(selector=1, port=20, label=0x123), 3),
        (probe(selector=1, port=21), 1),
        (probe(selector=1, small=9), 4),
        (probe(selector=1, small=9, port=15), 4),
        (probe(selector=1, small=9, port=15, label=0x100), 5),
    ]
    seen = pass_through(switch, *(data for data, _ in cases), probe(selector=2, label=7, address=8))
    for got, (_, value) in zip(seen, cases, strict=False):
        assert got[18:22] == value.to_bytes(4, "big")
    assert seen[-1] == probe(selector=2, label=7, address=8)


def test_default_modified_reset_and_constant_entries(switch) -> None:
    switch.write((MODIFY, default("keyless", action=action("label", value=0x123, address=0x456))))
    assert pass_through(switch, probe(), probe(flags=0xF), probe(flags=8)) == [
        probe(label=0x123, address=0x456),
        None,
        probe(label=0x123, address=0x456, flags=8),
    ]
    switch.write((MODIFY, default("keyless")))
    assert pass_through(switch, probe()) == [probe()]


def test_modified_entry_takes_effect(switch) -> None:
    switch.insert(forward(0xB, 2))
    with ShmPort(switch.socket, 1) as a, ShmPort(switch.socket, 2) as b, ShmPort(switch.socket, 3) as c:
        a.send(ethernet(0xB))
        assert b.receive(SOON) == ethernet(0xB)
        switch.write((MODIFY, forward(0xB, 3)))
        a.send(ethernet(0xB))
        assert c.receive(SOON) == ethernet(0xB)
        assert b.poll() is None


# --- Counters ---------------------------------------------------------------------------------------


def counts(packets: int, byte_count: int) -> p4r.CounterData:
    return p4r.CounterData(packet_count=packets, byte_count=byte_count)


def test_direct_counters(switch) -> None:
    size = len(ethernet(0xB))
    switch.insert(forward(0xB, 2, counter_data=counts(100, 1000)), forward(0xC, 2))
    with ShmPort(switch.socket, 1) as a, ShmPort(switch.socket, 2) as b:
        for destination in (0xB, 0xF, 0xB, 0xC):
            a.send(ethernet(destination))
        assert len(b.drain(3, SOON)) == 3
    data = counts(0, 0)
    wanted = table_entry("forward", counter_data=data)
    assert {e.match[0].exact.value: e.counter_data for e in switch.read(wanted)} == {
        b"\x0b": counts(102, 1000 + 2 * size),
        b"\x0c": counts(1, size),
    }
    assert not any(e.HasField("counter_data") for e in switch.read(table_entry("forward")))
    assert switch.read(default("forward", counter_data=data))[0].counter_data == counts(1, size)
    key = table_entry("forward", exact(1, 0xB))
    direct = p4r.DirectCounterEntry(table_entry=key)
    (reply,) = switch.read(direct)
    assert (reply.data, reply.table_entry) == (counts(102, 1000 + 2 * size), key)
    assert len(switch.read(p4r.DirectCounterEntry())) == 2
    assert len(switch.read(p4r.DirectCounterEntry(table_entry=table_entry("forward")))) == 2
    (reply,) = switch.read(p4r.DirectCounterEntry(table_entry=default("forward")))
    assert (reply.data, reply.table_entry.is_default_action) == (counts(1, size), True)

    switch.write((MODIFY, p4r.DirectCounterEntry(table_entry=key, data=counts(7, 8))))
    assert switch.read(direct)[0].data == counts(7, 8)
    switch.write((MODIFY, p4r.DirectCounterEntry(table_entry=key)))  # without data: unchanged
    assert switch.read(direct)[0].data == counts(7, 8)
    switch.write((MODIFY, forward(0xB, 3)))  # an entry keeps its count when its action changes
    assert switch.read(direct)[0].data == counts(7, 8)
    switch.write((MODIFY, forward(0xB, 3, counter_data=counts(1, 2))))
    assert switch.read(direct)[0].data == counts(1, 2)
    switch.write((MODIFY, default("forward")))
    assert switch.read(default("forward", counter_data=data))[0].counter_data == counts(0, 0)
    switch.write((DELETE, key), (INSERT, forward(0xB, 3)))
    assert switch.read(direct)[0].data == counts(0, 0)


def test_direct_counters_refuse(switch) -> None:
    key = table_entry("forward", exact(1, 0xB))
    entry = p4r.DirectCounterEntry(table_entry=key, data=counts(1, 1))
    fails(NOT_FOUND, "no entry", switch.write, (MODIFY, entry))
    fails(NOT_FOUND, "no entry", switch.read, entry)
    fails(NOT_FOUND, "no table", switch.read, p4r.DirectCounterEntry(table_entry=p4r.TableEntry(table_id=9)))
    fails(
        INVALID_ARGUMENT,
        "no direct counter",
        switch.read,
        p4r.DirectCounterEntry(table_entry=table_entry("route")),
    )
    switch.insert(forward(0xB, 1))
    for kind in (INSERT, DELETE):
        fails(INVALID_ARGUMENT, "only be modified", switch.write, (kind, entry))
    entry.data.byte_count = -5
    fails(INVALID_ARGUMENT, "not negative", switch.write, (MODIFY, entry))


def counter(index: int | None = None, **fields) -> p4r.CounterEntry:
    message = p4r.CounterEntry(counter_id=object_id("counters", "port_frames"), **fields)
    if index is not None:
        message.index.index = index
    return message


def test_indirect_counters(switch) -> None:
    with ShmPort(switch.socket, 3) as c, ShmPort(switch.socket, 2) as b:
        switch.insert(forward(0xB, 2))
        for _ in range(4):
            c.send(ethernet(0xB))
        assert len(b.drain(4, SOON)) == 4
    size = len(ethernet(0xB))
    assert switch.read(counter(3)) == [counter(3, data=counts(4, 4 * size))]
    everything = switch.read(counter())
    assert [e.index.index for e in everything] == list(range(8))
    assert sum(e.data.packet_count for e in everything) == 4
    assert switch.read(p4r.CounterEntry()) == everything
    switch.write((MODIFY, counter(3, data=counts(2**62, 5))), (MODIFY, counter(7)))
    assert switch.read(counter(3)) == [counter(3, data=counts(2**62, 5))]
    switch.write((MODIFY, counter(data=counts(1, 2))))
    assert switch.read(counter()) == [counter(i, data=counts(1, 2)) for i in range(8)]


def test_indirect_counters_refuse(switch) -> None:
    for call in (switch.read, lambda message: switch.write((MODIFY, message))):
        fails(OUT_OF_RANGE, "8 cells", call, counter(8))
        fails(INVALID_ARGUMENT, "negative", call, counter(-1))
        fails(NOT_FOUND, "no counter", call, p4r.CounterEntry(counter_id=77))
    fails(INVALID_ARGUMENT, "all counters", switch.read, p4r.CounterEntry(index=p4r.Index(index=1)))
    fails(INVALID_ARGUMENT, "not negative", switch.write, (MODIFY, counter(1, data=counts(-1, 0))))
    for kind in (INSERT, DELETE):
        fails(INVALID_ARGUMENT, "only be modified", switch.write, (kind, counter(1)))


# --- Registers --------------------------------------------------------------------------------------


def register(index: int | None = None, value: int | bytes | None = None) -> p4r.RegisterEntry:
    message = p4r.RegisterEntry(register_id=object_id("registers", "last_source"))
    if index is not None:
        message.index.index = index
    if value is not None:
        encoded = (
            value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big") if isinstance(value, int) else value
        )
        message.data.bitstring = encoded
    return message


def test_registers(switch) -> None:
    with ShmPort(switch.socket, 2) as b:
        switch.insert(forward(0xB, 2))
        b.send(ethernet(0xB))
        assert b.receive(SOON)
    assert switch.read(register(2)) == [register(2, 0x020000000001)]
    assert switch.read(register()) == [register(i, 0x020000000001 if i == 2 else 0) for i in range(4)]
    assert switch.read(p4r.RegisterEntry()) == switch.read(register())
    switch.write((MODIFY, register(1, b"\0" * 9 + b"\x09")))
    assert switch.read(register(1)) == [register(1, 9)]
    switch.write((MODIFY, register(value=5)))
    assert switch.read(register()) == [register(i, 5) for i in range(4)]


def test_registers_refuse(switch) -> None:
    fails(OUT_OF_RANGE, "4 cells", switch.read, register(4))
    fails(INVALID_ARGUMENT, "negative", switch.read, register(-1))
    fails(NOT_FOUND, "no register", switch.read, p4r.RegisterEntry(register_id=5))
    fails(OUT_OF_RANGE, "48 bits", switch.write, (MODIFY, register(0, 1 << 48)))
    fails(INVALID_ARGUMENT, "48 bits", switch.write, (MODIFY, register(0)))
    wrong = register(0)
    wrong.data.CopyFrom(p4d.P4Data(bool=True))
    fails(INVALID_ARGUMENT, "48 bits", switch.write, (MODIFY, wrong))
    for kind in (INSERT, DELETE):
        fails(INVALID_ARGUMENT, "only be modified", switch.write, (kind, register(0, 1)))


# --- Replication ------------------------------------------------------------------------------------


def group(number: int, *replicas: tuple[int, int], **fields) -> p4r.MulticastGroupEntry:
    message = p4r.MulticastGroupEntry(multicast_group_id=number, **fields)
    for port, instance in replicas:
        message.replicas.add(egress_port=port, instance=instance)
    return message


def session(number: int, *replicas: tuple[int, int], **fields) -> p4r.CloneSessionEntry:
    message = p4r.CloneSessionEntry(session_id=number, **fields)
    for port, instance in replicas:
        message.replicas.add(egress_port=port, instance=instance)
    return message


def test_multicast_groups(switch) -> None:
    switch.insert(group(1, (2, 0), (3, 1), metadata=b"m"), group(65535), group(7, (1, 0)))
    assert switch.read(group(0)) == [group(1, (2, 0), (3, 1), metadata=b"m"), group(65535), group(7, (1, 0))]
    assert switch.read(group(1)) == [group(1, (2, 0), (3, 1), metadata=b"m")]
    assert switch.read(group(2)) == []
    switch.insert(table_entry("forward", exact(1, 0xB), action=action("to_group", group=1)))
    with ShmPort(switch.socket, 1) as a, ShmPort(switch.socket, 2) as b, ShmPort(switch.socket, 3) as c:
        a.send(ethernet(0xB))
        assert b.receive(SOON) == c.receive(SOON) == ethernet(0xB)
        switch.write((MODIFY, group(1, (3, 0))))
        a.send(ethernet(0xB))
        assert c.receive(SOON) == ethernet(0xB)
        assert b.poll() is None
        switch.write((MODIFY, group(1)))
        assert switch.read(group(1)) == [group(1)]
        switch.write((MODIFY, group(1, (2, 0))))
        a.send(ethernet(0xB))
        assert b.receive(SOON) == ethernet(0xB)
        switch.write((DELETE, group(1)), (DELETE, group(65535)))
    assert switch.read(group(0)) == [group(7, (1, 0))]


def test_ports_as_bytes(switch) -> None:
    written = p4r.MulticastGroupEntry(multicast_group_id=1)
    written.replicas.add(port=b"\x01\x00", instance=3)
    switch.insert(written)
    assert switch.read(group(1)) == [written]
    written.replicas.add(port=b"\x02\x00", instance=3)
    fails(OUT_OF_RANGE, "9 bits", switch.write, (MODIFY, written))
    assert len(switch.read(group(1))[0].replicas) == 1


def test_multicast_groups_refuse(switch) -> None:
    switch.insert(group(1))
    fails(ALREADY_EXISTS, "group 1 exists", switch.insert, group(1))
    fails(NOT_FOUND, "group 2 does not exist", switch.write, (MODIFY, group(2)))
    fails(NOT_FOUND, "group 2 does not exist", switch.write, (DELETE, group(2)))
    fails(INVALID_ARGUMENT, "1 to 65535", switch.insert, group(0))
    fails(INVALID_ARGUMENT, "1 to 65535", switch.insert, group(65536))
    fails(INVALID_ARGUMENT, "port 512", switch.insert, group(2, (512, 0)))
    fails(INVALID_ARGUMENT, "instance 65536", switch.insert, group(2, (1, 65536)))
    fails(INVALID_ARGUMENT, "same port and instance", switch.insert, group(2, (1, 1), (1, 1)))
    no_port = group(2)
    no_port.replicas.add(instance=1)
    fails(INVALID_ARGUMENT, "needs a port", switch.insert, no_port)
    backup = group(2, (1, 0))
    backup.replicas[0].backup_replicas.add(port=b"\x02")
    fails(UNIMPLEMENTED, "backup replicas", switch.insert, backup)
    neither = p4r.PacketReplicationEngineEntry()
    fails(INVALID_ARGUMENT, "multicast group or a clone session", switch.insert, neither)
    fails(INVALID_ARGUMENT, "multicast group or a clone session", switch.read, neither)
    assert switch.read(group(0)) == [group(1)]


def test_clone_sessions(switch) -> None:
    size = len(ethernet(0xB))
    switch.insert(session(5, (3, 0)), session(6, (3, 1), packet_length_bytes=20))
    assert switch.read(session(0)) == [session(5, (3, 0)), session(6, (3, 1), packet_length_bytes=20)]
    mirror = table_entry("forward", exact(1, 0xB), action=action("mirror", session=5, port=2))
    switch.insert(mirror)
    with ShmPort(switch.socket, 1) as a, ShmPort(switch.socket, 2) as b, ShmPort(switch.socket, 3) as c:
        a.send(ethernet(0xB))
        assert b.receive(SOON) == c.receive(SOON) == ethernet(0xB)
        mirror.action.CopyFrom(action("mirror", session=6, port=2))
        switch.write((MODIFY, mirror))
        a.send(ethernet(0xB))
        assert len(b.receive(SOON)) == size
        assert c.receive(SOON) == ethernet(0xB)[:20]
        switch.write((DELETE, session(6)))
        a.send(ethernet(0xB))
        assert b.receive(SOON) == ethernet(0xB)
        assert c.poll() is None
    fails(NOT_FOUND, "does not exist", switch.write, (DELETE, session(6)))
    fails(INVALID_ARGUMENT, "1 to 32767", switch.insert, session(0))
    fails(INVALID_ARGUMENT, "1 to 32767", switch.insert, session(32768))
    fails(UNIMPLEMENTED, "classes of service", switch.insert, session(7, class_of_service=1))
    fails(INVALID_ARGUMENT, "not negative", switch.insert, session(7, (1, 0), packet_length_bytes=-1))
