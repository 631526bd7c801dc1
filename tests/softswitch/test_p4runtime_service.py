"""The service as a whole: arbitration, pipeline config, batches and their errors, packet I/O."""

import threading
from contextlib import contextmanager

import grpc
import pytest
from finsy.proto import p4r
from p4rt_client import (
    COMMIT,
    CPU_PORT,
    DELETE,
    DEVICE,
    INSERT,
    MODIFY,
    SOON,
    Controller,
    action,
    details,
    entity,
    exact,
    forward,
    pipeline_config,
    serving,
    table_entry,
)

from netreduce.softswitch.shm_client import ShmPort

Code = grpc.StatusCode
SetConfig = p4r.SetForwardingPipelineConfigRequest
GetConfig = p4r.GetForwardingPipelineConfigRequest
OK, NOT_FOUND, ALREADY_EXISTS = 0, 5, 6


@pytest.fixture
def address():
    with serving() as (_, _, address):
        yield address


@contextmanager
def controller(address: str, election_id: int | None = 1, *, primary: bool = True):
    client = Controller(address, election_id)
    try:
        if primary:
            assert client.arbitrate().status.code == OK
        yield client
    finally:
        client.close()


@contextmanager
def refused(code: Code, message: str = ""):
    with pytest.raises(grpc.RpcError) as failure:
        yield
    error = failure.value
    assert error.code() is code, f"{error.code()}: {error.details()}"
    assert message in error.details()
    assert "Traceback" not in error.details()


# --- Arbitration ------------------------------------------------------------------------------------


def test_first_controller_is_primary(address) -> None:
    with controller(address, (1 << 100) + 5, primary=False) as client:
        answer = client.arbitrate()
        assert answer.device_id == DEVICE
        assert (answer.election_id.high, answer.election_id.low) == (1 << 36, 5)
        assert answer.status.code == OK


def test_higher_election_id_takes_over(address) -> None:
    with controller(address, 10) as old:
        old.set_pipeline(config=pipeline_config())
        with controller(address, 11) as new:
            told = old.receive().arbitration
            assert (told.status.code, told.election_id.low) == (ALREADY_EXISTS, 11)
            with refused(Code.PERMISSION_DENIED, "its election id is 11"):
                old.insert(forward(1, 1))
            new.insert(forward(1, 1))
            with refused(Code.PERMISSION_DENIED):
                old.set_pipeline(config=pipeline_config())
            assert len(old.read(table_entry("forward"))) == 1  # reading needs no primary


def test_lower_election_id_is_backup_and_must_ask_again(address) -> None:
    with controller(address, 10) as primary, controller(address, 5, primary=False) as backup:
        answer = backup.arbitrate()
        assert (answer.status.code, answer.election_id.low) == (ALREADY_EXISTS, 10)
        primary.disconnect()
        told = backup.receive().arbitration
        assert (told.status.code, told.election_id.low) == (NOT_FOUND, 10)
        with refused(Code.PERMISSION_DENIED, "no primary"):
            backup.insert(forward(1, 1))
        # 5 is lower than the highest ever seen; 10 is free now and makes it primary.
        assert backup.arbitrate().status.code == NOT_FOUND
        backup.election_id = 10
        assert backup.arbitrate().status.code == OK


def test_primary_may_step_down(address) -> None:
    with controller(address, 10) as first, controller(address, 5, primary=False) as second:
        second.arbitrate()
        first.election_id = 3
        assert first.arbitrate().status.code == NOT_FOUND
        assert second.receive().arbitration.status.code == NOT_FOUND
        second.election_id = 12
        assert second.arbitrate().status.code == OK
        told = first.receive().arbitration
        assert (told.status.code, told.election_id.low) == (ALREADY_EXISTS, 12)


def test_repeated_update_of_the_primary(address) -> None:
    with controller(address, 10) as first, controller(address, 5, primary=False) as second:
        second.arbitrate()
        assert first.arbitrate().status.code == OK  # nothing changed: nobody else hears of it
        first.election_id = 20
        assert first.arbitrate().status.code == OK
        told = second.receive().arbitration
        assert (told.status.code, told.election_id.low) == (ALREADY_EXISTS, 20)


def test_without_election_id_never_primary(address) -> None:
    with controller(address, None, primary=False) as standby:
        answer = standby.arbitrate()
        assert answer.status.code == NOT_FOUND
        assert not answer.HasField("election_id")
        with refused(Code.PERMISSION_DENIED):
            standby.set_pipeline(config=pipeline_config())
        with controller(address, 0):  # zero is an election id
            assert standby.receive().arbitration.status.code == ALREADY_EXISTS
            with refused(Code.PERMISSION_DENIED):
                standby.insert(forward(1, 1))


def test_used_election_id_ends_the_stream(address) -> None:
    with controller(address, 10) as first, controller(address, 10, primary=False) as second:
        with refused(Code.INVALID_ARGUMENT, "Election id 10 is already used"):
            second.arbitrate()
        first.set_pipeline(config=pipeline_config())


@pytest.mark.parametrize("live", [False, True])
def test_other_device_or_role_ends_the_stream(address, live: bool) -> None:
    for fields, code in (
        ({"device_id": 8}, Code.FAILED_PRECONDITION if live else Code.NOT_FOUND),
        ({"role": "reader"}, Code.FAILED_PRECONDITION if live else Code.INVALID_ARGUMENT),
    ):
        with controller(address, primary=live) as client, refused(code):
            client.arbitrate(**fields)


def test_too_many_streams(address) -> None:
    clients = [Controller(address, n) for n in range(17)]
    try:
        for client in clients[:16]:
            client.arbitrate()
        with refused(Code.RESOURCE_EXHAUSTED):
            clients[16].arbitrate()
    finally:
        for client in clients:
            client.close()


def test_stream_end_frees_the_election_id(address) -> None:
    for _ in range(5):
        client = Controller(address, 10)
        deadline = 200
        while True:  # the server may hear of the end of the stream before a little later
            try:
                assert client.arbitrate().status.code == OK
                break
            except grpc.RpcError as error:
                assert error.code() is Code.INVALID_ARGUMENT
                client.stream = None
                deadline -= 1
                assert deadline
        client.close()


# --- Pipeline config --------------------------------------------------------------------------------


def test_everything_needs_a_pipeline(address) -> None:
    with controller(address) as client:
        assert not client.get_pipeline().HasField("config")
        with refused(Code.FAILED_PRECONDITION, "No forwarding pipeline config"):
            client.insert(forward(1, 1))
        with refused(Code.FAILED_PRECONDITION, "No forwarding pipeline config"):
            client.read(p4r.TableEntry())


def test_get_returns_what_was_set(address) -> None:
    config = pipeline_config(cookie=99)
    with controller(address) as client:
        client.set_pipeline(config=config)
        assert client.get_pipeline().config == config
        only = client.get_pipeline(GetConfig.COOKIE_ONLY).config
        assert only == p4r.ForwardingPipelineConfig(cookie=config.cookie)
        p4info = client.get_pipeline(GetConfig.P4INFO_AND_COOKIE).config
        assert p4info == p4r.ForwardingPipelineConfig(p4info=config.p4info, cookie=config.cookie)
        device = client.get_pipeline(GetConfig.DEVICE_CONFIG_AND_COOKIE).config
        assert device == p4r.ForwardingPipelineConfig(
            p4_device_config=config.p4_device_config, cookie=config.cookie
        )
        with refused(Code.INVALID_ARGUMENT):
            client.get_pipeline(77)


def test_verify_changes_nothing(address) -> None:
    with controller(address) as client:
        client.set_pipeline(SetConfig.VERIFY, pipeline_config())
        assert not client.get_pipeline().HasField("config")


def test_commit_clears_all_state(address) -> None:
    with controller(address) as client:
        client.set_pipeline(config=pipeline_config())
        client.insert(forward(1, 1), p4r.MulticastGroupEntry(multicast_group_id=1))
        client.set_pipeline(config=pipeline_config())
        assert client.read(table_entry("forward"), p4r.MulticastGroupEntry()) == []


def test_save_then_commit_with_writes_between() -> None:
    """What is written after VERIFY_AND_SAVE is there when COMMIT makes the new pipeline run."""
    with serving() as (core, _, address), controller(address) as client:
        core.allow_shm_ports(1, 2)
        core.listen(f"@{address}")
        with ShmPort(f"@{address}", 1) as a, ShmPort(f"@{address}", 2) as b:
            client.set_pipeline(config=pipeline_config(cookie=1))
            client.insert(forward(0xA, 1))
            client.set_pipeline(SetConfig.VERIFY_AND_SAVE, pipeline_config(cookie=2))
            assert client.read(table_entry("forward")) == []
            client.insert(forward(0xA, 2))
            data = bytes.fromhex("00000000000a" "020000000001" "9999") + b"payload"
            b.send(data)
            assert a.receive(SOON) == data  # frames still go the old way
            client.set_pipeline(SetConfig.COMMIT)
            a.send(data)
            assert b.receive(SOON) == data
            assert client.get_pipeline().config.cookie.cookie == 2
            with refused(Code.NOT_FOUND, "VERIFY_AND_SAVE comes first"):
                client.set_pipeline(SetConfig.COMMIT)
            with refused(Code.INVALID_ARGUMENT):
                client.set_pipeline(SetConfig.COMMIT, pipeline_config())


def test_reconcile_keeps_state_of_the_same_program_only(address) -> None:
    with controller(address) as client:
        with refused(Code.UNIMPLEMENTED, "use VERIFY_AND_COMMIT"):
            client.set_pipeline(SetConfig.RECONCILE_AND_COMMIT, pipeline_config())
        client.set_pipeline(config=pipeline_config(cookie=1))
        client.insert(forward(1, 1))
        client.set_pipeline(SetConfig.RECONCILE_AND_COMMIT, pipeline_config(cookie=2))
        assert len(client.read(table_entry("forward"))) == 1
        assert client.get_pipeline().config.cookie.cookie == 2
        other = pipeline_config()
        other.p4_device_config += b"\n"
        with refused(Code.UNIMPLEMENTED, "cannot carry its state over"):
            client.set_pipeline(SetConfig.RECONCILE_AND_COMMIT, other)
        with refused(Code.INVALID_ARGUMENT):
            client.set_pipeline(SetConfig.RECONCILE_AND_COMMIT)


def broken_configs():
    def changed(change):
        config = pipeline_config()
        change(config)
        return config

    def first_table(config):
        return next(t for t in config.p4info.tables if t.preamble.alias == "forward")

    return {
        "empty": (p4r.ForwardingPipelineConfig(), "needs a P4Info and a p4_device_config"),
        "no p4info": (changed(lambda c: c.ClearField("p4info")), "needs a P4Info"),
        "no json": (changed(lambda c: c.ClearField("p4_device_config")), "needs a P4Info"),
        "not json": (changed(lambda c: setattr(c, "p4_device_config", b"\xff{")), "is not BMv2 JSON"),
        "other json": (changed(lambda c: setattr(c, "p4_device_config", b"[1]")), "is not BMv2 JSON"),
        "unknown table": (
            changed(lambda c: setattr(first_table(c).preamble, "name", "Other.t")),
            "table Other.t is not in the device config",
        ),
        "wrong width": (
            changed(lambda c: setattr(first_table(c).match_fields[0], "bitwidth", 32)),
            "table Switch.forward, field destination: 32 bits in the P4Info, 48 bits",
        ),
        "wrong match type": (
            changed(lambda c: setattr(first_table(c).match_fields[0], "match_type", 3)),
            "exact match in the device config",
        ),
        "missing field": (
            changed(lambda c: first_table(c).ClearField("match_fields")),
            "0 match fields in the P4Info and 1",
        ),
        "wrong parameter": (
            changed(lambda c: setattr(c.p4info.actions[2].params[0], "bitwidth", 8)),
            "the parameters of action",
        ),
    }


@pytest.mark.parametrize("name", broken_configs())
def test_config_that_cannot_be_realised(address, name: str) -> None:
    config, message = broken_configs()[name]
    with controller(address) as client:
        for step in (SetConfig.VERIFY, SetConfig.VERIFY_AND_SAVE, COMMIT):
            with refused(Code.INVALID_ARGUMENT, message):
                client.set_pipeline(step, config)
        assert not client.get_pipeline().HasField("config")


def test_refused_config_leaves_the_running_one(address) -> None:
    with controller(address) as client:
        client.set_pipeline(config=pipeline_config(cookie=5))
        client.insert(forward(1, 1))
        with refused(Code.INVALID_ARGUMENT):
            client.set_pipeline(config=broken_configs()["unknown table"][0])
        assert client.get_pipeline().config.cookie.cookie == 5
        assert len(client.read(table_entry("forward"))) == 1


def test_requests_of_the_wrong_kind(address) -> None:
    with controller(address) as client:
        with refused(Code.INVALID_ARGUMENT):
            client.set_pipeline(0, pipeline_config())
        with refused(Code.NOT_FOUND, "device 8 is unknown"):
            client.stub.GetForwardingPipelineConfig(GetConfig(device_id=8), timeout=SOON)
        with refused(Code.NOT_FOUND, "device 8 is unknown"):
            list(client.stub.Read(p4r.ReadRequest(device_id=8), timeout=SOON))
        with refused(Code.NOT_FOUND, "device 8 is unknown"):
            client.write(device_id=8)
        with refused(Code.NOT_FOUND, "role 'x'"):
            client.write(role="x")
        with refused(Code.NOT_FOUND, "role 'x'"):
            client.stub.SetForwardingPipelineConfig(client.complete(SetConfig(role="x")), timeout=SOON)
        client.set_pipeline(config=pipeline_config())
        with refused(Code.NOT_FOUND, "role 'x'"):
            list(client.stub.Read(p4r.ReadRequest(device_id=DEVICE, role="x"), timeout=SOON))
        for atomicity in (p4r.WriteRequest.ROLLBACK_ON_ERROR, p4r.WriteRequest.DATAPLANE_ATOMIC):
            with refused(Code.UNIMPLEMENTED):
                client.write((INSERT, forward(1, 1)), atomicity=atomicity)


def test_capabilities(address) -> None:
    with controller(address, primary=False) as client:
        reply = client.stub.Capabilities(p4r.CapabilitiesRequest(), timeout=SOON)
        assert reply.p4runtime_api_version == "1.4.1"


# --- Batches ----------------------------------------------------------------------------------------


def test_batch_reports_every_update(address) -> None:
    with controller(address) as client:
        client.set_pipeline(config=pipeline_config())
        with pytest.raises(grpc.RpcError) as failure:
            client.write(
                (INSERT, forward(1, 1)),
                (INSERT, forward(1, 2)),
                (DELETE, forward(9, 1)),
                (INSERT, p4r.Entity()),
                (INSERT, forward(2, 512)),
                (0, forward(3, 1)),
                (INSERT, p4r.TableEntry(table_id=12345)),
                (INSERT, p4r.Entity(meter_entry=p4r.MeterEntry())),
                (INSERT, forward(4, 1)),
            )
        assert failure.value.code() is Code.UNKNOWN
        errors = details(failure.value)
        names = [Code(next(c for c in Code if c.value[0] == e.canonical_code)).name for e in errors]
        assert names == [
            "OK",
            "ALREADY_EXISTS",
            "NOT_FOUND",
            "INVALID_ARGUMENT",
            "OUT_OF_RANGE",
            "INVALID_ARGUMENT",
            "NOT_FOUND",
            "UNIMPLEMENTED",
            "OK",
        ]
        assert all(bool(e.message) == (e.canonical_code != 0) for e in errors)
        assert {e.match[0].exact.value for e in client.read(table_entry("forward"))} == {b"\x01", b"\x04"}


def test_empty_batches(address) -> None:
    with controller(address) as client:
        client.set_pipeline(config=pipeline_config())
        client.write()
        assert client.read() == []


def test_read_returns_what_is_right_and_reports_the_rest(address) -> None:
    with controller(address) as client:
        client.set_pipeline(config=pipeline_config())
        client.insert(forward(1, 1), p4r.MulticastGroupEntry(multicast_group_id=3))
        found: list = []
        with pytest.raises(grpc.RpcError) as failure:
            client.read_into(
                found,
                table_entry("forward"),
                p4r.TableEntry(table_id=1),
                p4r.Entity(),
                p4r.Entity(value_set_entry=p4r.ValueSetEntry(value_set_id=1)),
                p4r.MulticastGroupEntry(),
            )
        assert failure.value.code() is Code.UNKNOWN
        assert [e.canonical_code for e in details(failure.value)] == [0, 5, 3, 5, 0]
        assert [type(item).__name__ for item in found] == ["TableEntry", "MulticastGroupEntry"]


@pytest.mark.parametrize(
    "field",
    [
        "extern_entry",
        "action_profile_member",
        "action_profile_group",
        "meter_entry",
        "direct_meter_entry",
        "value_set_entry",
        "digest_entry",
    ],
)
def test_entities_that_the_switch_does_not_have(address, field: str) -> None:
    """They cannot be written; reading all of them finds none, reading one is refused."""
    every, one = p4r.Entity(), p4r.Entity()
    getattr(every, field).SetInParent()
    inner = getattr(one, field)
    if field == "direct_meter_entry":
        inner.table_entry.table_id = 9
    else:
        setattr(inner, next(f.name for f in inner.DESCRIPTOR.fields if f.name.endswith("_id")), 9)
    with controller(address) as client:
        client.set_pipeline(config=pipeline_config())
        assert client.read(every) == []
        attempts = {
            Code.UNIMPLEMENTED: lambda: client.write((INSERT, every)),
            Code.NOT_FOUND: lambda: client.read(one),
        }
        for code, attempt in attempts.items():
            with pytest.raises(grpc.RpcError) as failure:
                attempt()
            (error,) = details(failure.value)
            assert error.canonical_code == code.value[0]


def test_large_reads_come_in_several_responses(address) -> None:
    with controller(address) as client:
        client.set_pipeline(config=pipeline_config())
        request = p4r.ReadRequest(device_id=DEVICE)
        for _ in range(100):
            request.entities.append(entity(p4r.CounterEntry()))
        responses = list(client.stub.Read(request, timeout=SOON))
        assert sum(len(r.entities) for r in responses) == 800
        assert len(responses) > 1


def test_concurrent_writers_and_readers(address) -> None:
    """A reader never sees half of a batch that swaps one entry for another."""
    with controller(address) as client:
        client.set_pipeline(config=pipeline_config())
        client.insert(forward(1, 1))
        failures: list = []
        done = threading.Event()

        def swap() -> None:
            try:
                for turn in range(100):
                    old, new = (1, 2) if turn % 2 == 0 else (2, 1)
                    client.write((DELETE, forward(old, 1)), (INSERT, forward(new, 1)))
            except grpc.RpcError as error:
                failures.append(error)
            finally:
                done.set()

        thread = threading.Thread(target=swap)
        thread.start()
        sizes = set()
        while not done.is_set():
            sizes.add(len(client.read(table_entry("forward"))))
        thread.join()
        assert not failures
        assert sizes == {1}


# --- Packet I/O -------------------------------------------------------------------------------------


def packet_out(port: int | bytes, payload: bytes, *, padding: int | None = 0) -> p4r.StreamMessageRequest:
    value = port if isinstance(port, bytes) else port.to_bytes(2, "big")
    message = p4r.StreamMessageRequest()
    message.packet.payload = payload
    message.packet.metadata.add(metadata_id=1, value=value)
    if padding is not None:
        message.packet.metadata.add(metadata_id=2, value=bytes([padding]))
    return message


FRAME = bytes.fromhex("00000000000a" "020000000001" "9999") + b"payload"


def test_packet_out_and_in() -> None:
    with serving() as (core, _, address), controller(address) as client:
        core.allow_shm_ports(1, 300)
        core.listen(f"@{address}")
        client.set_pipeline(config=pipeline_config())
        with ShmPort(f"@{address}", 1) as a, ShmPort(f"@{address}", 259) as b:
            client.send(packet_out(259, FRAME))
            assert b.receive(SOON) == FRAME
            client.insert(table_entry("forward", exact(1, 0xA), action=action("to_cpu")))
            for port, number in ((a, 1), (b, 259)):
                port.send(FRAME)
                packet = client.receive().packet
                assert packet.payload == FRAME
                assert [(m.metadata_id, m.value) for m in packet.metadata] == [
                    (1, number.to_bytes((number.bit_length() + 7) // 8, "big")),
                    (2, b"\x00"),
                ]
            stats = core.port_stats(CPU_PORT)
            assert (stats.rx_frames, stats.tx_frames) == (1, 2)


def test_packet_in_goes_to_the_primary_only() -> None:
    with serving() as (core, _, address), controller(address, 5) as primary:
        core.allow_shm_ports(1, 1)
        core.listen(f"@{address}")
        primary.set_pipeline(config=pipeline_config())
        primary.insert(table_entry("forward", exact(1, 0xA), action=action("to_cpu")))
        with controller(address, 4, primary=False) as backup, ShmPort(f"@{address}", 1) as a:
            backup.arbitrate()
            a.send(FRAME)
            assert primary.receive().packet.payload == FRAME
            backup.election_id = 6
            backup.send(backup.arbitration())
            assert backup.receive().WhichOneof("update") == "arbitration"  # no packet came before it
            a.send(FRAME)
            assert backup.receive().packet.payload == FRAME


@pytest.mark.parametrize(
    ("message", "code", "text"),
    [
        (packet_out(1, FRAME, padding=None), 3, "packet-out metadata padding is missing"),
        (packet_out(b"\x02\x00", FRAME), 11, "does not fit in 9 bits"),
        (packet_out(b"", FRAME), 11, "empty"),
        (p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=FRAME)), 3, "egress_port is missing"),
        (p4r.StreamMessageRequest(), 3, "empty"),
        (p4r.StreamMessageRequest(digest_ack=p4r.DigestListAck(digest_id=4)), 12, "digest_ack"),
        (packet_out(1, bytes(10240)), 9, "10240 bytes"),
    ],
)
def test_bad_stream_messages_are_reported_on_the_stream(address, message, code: int, text: str) -> None:
    with controller(address) as client:
        client.set_pipeline(config=pipeline_config())
        client.send(message)
        error = client.receive().error
        assert error.canonical_code == code
        assert text in error.message
        if message.WhichOneof("update") == "packet":
            assert error.packet_out.packet_out == message.packet
        assert client.arbitrate().status.code == OK  # the stream goes on


def test_unknown_and_repeated_packet_out_metadata(address) -> None:
    with controller(address) as client:
        client.set_pipeline(config=pipeline_config())
        for metadata_id, text in ((9, "unknown packet-out metadata id 9"), (1, "1 is given twice")):
            message = packet_out(1, FRAME)
            message.packet.metadata.add(metadata_id=metadata_id, value=b"\x01")
            client.send(message)
            assert text in client.receive().error.message


def test_packet_out_by_a_backup_or_without_pipeline(address) -> None:
    with controller(address, 5) as primary, controller(address, 4, primary=False) as backup:
        backup.arbitrate()
        primary.send(packet_out(1, FRAME))
        error = primary.receive().error
        assert (error.canonical_code, "pipeline" in error.message) == (9, True)
        primary.set_pipeline(config=pipeline_config())
        backup.send(packet_out(1, FRAME))
        assert backup.receive().error.canonical_code == 7


def test_a_controller_that_does_not_read_does_not_stop_the_switch() -> None:
    with serving() as (core, _, address), controller(address) as client:
        core.allow_shm_ports(1, 2)
        core.listen(f"@{address}")
        client.set_pipeline(config=pipeline_config())
        client.insert(table_entry("forward", exact(1, 0xA), action=action("to_cpu")), forward(0xB, 2))
        big = FRAME + bytes(4000)
        with ShmPort(f"@{address}", 1) as a, ShmPort(f"@{address}", 2) as b:
            sent = 0
            while sent < 4000:
                sent += a.send(big)
            other = bytes.fromhex("00000000000b") + FRAME[6:]
            while not a.send(other):
                pass
            assert b.receive(SOON) == other
        client.write((MODIFY, forward(0xB, 1)))
