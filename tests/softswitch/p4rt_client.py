"""A bare P4Runtime client for tests of the server: messages as they are, no help."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
from finsy.proto import p4i, p4r, p4r_grpc, rpc_status
from google.protobuf import text_format

from netreduce.softswitch.build import build_pipeline
from netreduce.softswitch.core import SwitchCore
from netreduce.softswitch.p4runtime import P4RuntimeServer

PROGRAMS = Path(__file__).parent / "programs"
DEVICE = 7
CPU_PORT = 500
SOON = 20.0

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
COMMIT = p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT


def pipeline_config(cookie: int | None = None) -> p4r.ForwardingPipelineConfig:
    config = p4r.ForwardingPipelineConfig(p4_device_config=(PROGRAMS / "control_plane.json").read_bytes())
    text_format.Parse((PROGRAMS / "control_plane.p4info.txtpb").read_text(), config.p4info)
    if cookie is not None:
        config.cookie.cookie = cookie
    return config


P4INFO: p4i.P4Info = pipeline_config().p4info


def object_id(kind: str, alias: str) -> int:
    """``kind`` is the name of a P4Info list: tables, actions, counters …"""
    return next(o.preamble.id for o in getattr(P4INFO, kind) if o.preamble.alias == alias)


def action(alias: str, **arguments: int | bytes) -> p4r.TableAction:
    message = p4r.TableAction()
    info = next(a for a in P4INFO.actions if a.preamble.alias == alias)
    message.action.action_id = info.preamble.id
    for param in info.params:
        if param.name in arguments:
            message.action.params.add(param_id=param.id, value=to_bytes(arguments[param.name]))
    return message


def to_bytes(value: int | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def exact(field_id: int, value: int | bytes) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=field_id, exact=p4r.FieldMatch.Exact(value=to_bytes(value)))


def lpm(field_id: int, value: int | bytes, length: int) -> p4r.FieldMatch:
    return p4r.FieldMatch(
        field_id=field_id, lpm=p4r.FieldMatch.LPM(value=to_bytes(value), prefix_len=length)
    )


def ternary(field_id: int, value: int | bytes, mask: int | bytes) -> p4r.FieldMatch:
    return p4r.FieldMatch(
        field_id=field_id, ternary=p4r.FieldMatch.Ternary(value=to_bytes(value), mask=to_bytes(mask))
    )


def range_match(field_id: int, low: int | bytes, high: int | bytes) -> p4r.FieldMatch:
    return p4r.FieldMatch(
        field_id=field_id, range=p4r.FieldMatch.Range(low=to_bytes(low), high=to_bytes(high))
    )


def optional(field_id: int, value: int | bytes) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=field_id, optional=p4r.FieldMatch.Optional(value=to_bytes(value)))


def table_entry(table: str, *match: p4r.FieldMatch, **fields) -> p4r.TableEntry:
    return p4r.TableEntry(table_id=object_id("tables", table), match=match, **fields)


def forward(destination: int, port: int, **fields) -> p4r.TableEntry:
    return table_entry("forward", exact(1, destination), action=action("to_port", port=port), **fields)


def entity(message) -> p4r.Entity:
    """The message in the field of its type."""
    if isinstance(message, p4r.MulticastGroupEntry):
        message = p4r.PacketReplicationEngineEntry(multicast_group_entry=message)
    if isinstance(message, p4r.CloneSessionEntry):
        message = p4r.PacketReplicationEngineEntry(clone_session_entry=message)
    field = next(
        f.name for f in p4r.Entity.DESCRIPTOR.fields if f.message_type is type(message).DESCRIPTOR
    )
    return p4r.Entity(**{field: message})


class Controller:
    """One connection and, once :meth:`arbitrate` is called, one stream."""

    def __init__(self, address: str, election_id: int | None = 1):
        self.channel = grpc.insecure_channel(address)
        self.stub = p4r_grpc.P4RuntimeStub(self.channel)
        self.election_id = election_id
        self._outgoing: queue.SimpleQueue = queue.SimpleQueue()
        self.stream = None

    def close(self) -> None:
        self._outgoing.put(None)
        self.channel.close()

    # --- Stream ---------------------------------------------------------------------------------

    def send(self, message: p4r.StreamMessageRequest) -> None:
        if self.stream is None:
            self.stream = self.stub.StreamChannel(iter(self._outgoing.get, None), timeout=SOON)
        self._outgoing.put(message)

    def receive(self) -> p4r.StreamMessageResponse:
        return next(self.stream)

    def arbitrate(self, **fields) -> p4r.MasterArbitrationUpdate:
        """Sends a MasterArbitrationUpdate and returns the first answer."""
        self.send(self.arbitration(**fields))
        return self.receive().arbitration

    def arbitration(self, *, device_id: int = DEVICE, role: str | None = None) -> p4r.StreamMessageRequest:
        message = p4r.StreamMessageRequest()
        message.arbitration.device_id = device_id
        if role is not None:
            message.arbitration.role.name = role
        if self.election_id is not None:
            message.arbitration.election_id.CopyFrom(self._election())
        return message

    def _election(self) -> p4r.Uint128:
        return p4r.Uint128(high=self.election_id >> 64, low=self.election_id & (1 << 64) - 1)

    def disconnect(self) -> None:
        self.stream.cancel()

    # --- Requests -------------------------------------------------------------------------------

    def complete(self, request):
        request.device_id = request.device_id or DEVICE
        if self.election_id is not None and not request.HasField("election_id"):
            request.election_id.CopyFrom(self._election())
        return request

    def set_pipeline(self, action: int = COMMIT, config: p4r.ForwardingPipelineConfig | None = None) -> None:
        request = p4r.SetForwardingPipelineConfigRequest(action=action)
        if config is not None:
            request.config.CopyFrom(config)
        self.stub.SetForwardingPipelineConfig(self.complete(request), timeout=60)

    def get_pipeline(self, response_type: int = 0) -> p4r.GetForwardingPipelineConfigResponse:
        request = p4r.GetForwardingPipelineConfigRequest(device_id=DEVICE, response_type=response_type)
        return self.stub.GetForwardingPipelineConfig(request, timeout=SOON)

    def write(self, *updates: tuple[int, object], **fields) -> None:
        request = p4r.WriteRequest(**fields)
        for kind, message in updates:
            given = message if isinstance(message, p4r.Entity) else entity(message)
            request.updates.add(type=kind, entity=given)
        self.stub.Write(self.complete(request), timeout=SOON)

    def insert(self, *messages) -> None:
        self.write(*((INSERT, message) for message in messages))

    def read(self, *messages) -> list:
        """The entities found, without their wrapping."""
        found: list = []
        self.read_into(found, *messages)
        return found

    def read_into(self, found: list, *messages) -> None:
        request = p4r.ReadRequest(device_id=DEVICE)
        for message in messages:
            request.entities.append(message if isinstance(message, p4r.Entity) else entity(message))
        for response in self.stub.Read(request, timeout=SOON):
            for item in response.entities:
                inner = getattr(item, item.WhichOneof("entity"))
                if isinstance(inner, p4r.PacketReplicationEngineEntry):
                    inner = getattr(inner, inner.WhichOneof("type"))
                found.append(inner)


def details(error: grpc.RpcError) -> list[p4r.Error]:
    """The errors of a batch, one for each of its elements."""
    for key, value in error.trailing_metadata():
        if key == "grpc-status-details-bin":
            status = rpc_status.Status.FromString(value)
            errors = []
            for detail in status.details:
                unpacked = p4r.Error()
                assert detail.Unpack(unpacked)
                errors.append(unpacked)
            assert status.code == error.code().value[0]
            assert status.message == error.details()
            return errors
    return []


@contextmanager
def serving(**settings) -> Iterator[tuple[SwitchCore, P4RuntimeServer, str]]:
    """A switch without ports or program, its server, and the server's address."""
    core = SwitchCore(cpu_port=CPU_PORT, **settings)
    with core:
        core.start()
        server = P4RuntimeServer(core, DEVICE, build_pipeline)
        address = server.serve("127.0.0.1:0")
        try:
            yield core, server, address
        finally:
            server.stop()
