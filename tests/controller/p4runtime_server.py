"""A P4Runtime server in memory: keeps what it is given, forwards nothing.

It has what the controller needs of a server and can be told to misbehave.  Tests of real forwarding run
against the embedded switch.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from finsy.proto import U128, p4r, p4r_grpc, rpc_code, rpc_status
from google.protobuf import any_pb2

NO_PIPELINE = "No forwarding pipeline config set for this device."


class P4RuntimeServer(p4r_grpc.P4RuntimeServicer):
    """One device.  ``start`` and ``stop`` may alternate; its state survives unless ``wipe`` is called."""

    def __init__(self, device_id: int = 1):
        self.device_id = device_id
        self.address = "127.0.0.1:0"
        self.config: p4r.ForwardingPipelineConfig | None = None
        self.entities: dict[bytes, p4r.Entity] = {}
        self.calls: list[str] = []
        self.push_error: tuple[grpc.StatusCode, str] | None = None
        self.rejected_table = 0
        self.push_gate: asyncio.Event | None = None
        self._streams: dict[int, grpc.aio.ServicerContext] = {}
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Serve; the first time on a port of the system's choice, later on the same."""
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        p4r_grpc.add_P4RuntimeServicer_to_server(self, self._server)
        port = self._server.add_insecure_port(self.address)
        self.address = f"127.0.0.1:{port}"
        await self._server.start()

    async def stop(self) -> None:
        """End as a killed process does."""
        await self._server.stop(0)
        self._streams.clear()

    def wipe(self) -> None:
        """Forget program and entries."""
        self.config = None
        self.entities.clear()

    # --- The service -------------------------------------------------------------------------------

    async def StreamChannel(self, request_iterator: AsyncIterator[Any], context: Any) -> None:
        election = 0
        try:
            async for request in request_iterator:
                election = U128.decode(request.arbitration.election_id)
                if self._streams.get(election, context) is not context:
                    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Election id already exists")
                self._streams[election] = context
                await self._arbitrate()
        finally:
            if self._streams.get(election) is context:
                del self._streams[election]
                await self._arbitrate()

    async def _arbitrate(self) -> None:
        if not self._streams:
            return
        primary = max(self._streams)
        for election, context in list(self._streams.items()):
            code = rpc_code.OK if election == primary else rpc_code.ALREADY_EXISTS
            update = p4r.MasterArbitrationUpdate(
                device_id=self.device_id,
                election_id=U128.encode(primary),
                status=rpc_status.Status(code=code),
            )
            await context.write(p4r.StreamMessageResponse(arbitration=update))

    async def Capabilities(self, request: Any, context: Any) -> p4r.CapabilitiesResponse:
        return p4r.CapabilitiesResponse(p4runtime_api_version="1.4.1")

    async def GetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:
        if self.config is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, NO_PIPELINE)
        reply = p4r.GetForwardingPipelineConfigResponse()
        reply.config.cookie.CopyFrom(self.config.cookie)
        if request.response_type != p4r.GetForwardingPipelineConfigRequest.COOKIE_ONLY:
            reply.config.p4info.CopyFrom(self.config.p4info)
        return reply

    async def SetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:
        self.calls.append("push")
        if self.push_gate is not None:
            await self.push_gate.wait()
        if self.push_error is not None:
            await context.abort(*self.push_error)
        await self._check_primary(request, context)
        # As BMv2 does: a new program finds the multicast groups still there.
        kept = {k: e for k, e in self.entities.items() if e.HasField("packet_replication_engine_entry")}
        self.config, self.entities = request.config, kept
        return p4r.SetForwardingPipelineConfigResponse()

    async def _check_primary(self, request: Any, context: Any) -> None:
        if U128.decode(request.election_id) != max(self._streams, default=-1):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not primary")

    async def Write(self, request: Any, context: Any) -> p4r.WriteResponse:
        if self.config is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, NO_PIPELINE)
        await self._check_primary(request, context)
        errors = [self._write(update) for update in request.updates]
        if any(error.canonical_code for error in errors):
            status = rpc_status.Status(code=rpc_code.UNKNOWN, message="some updates failed")
            for error in errors:
                detail = any_pb2.Any()
                detail.Pack(error)
                status.details.append(detail)
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            await context.abort(grpc.StatusCode.UNKNOWN, status.message)
        return p4r.WriteResponse()

    def _write(self, update: p4r.Update) -> p4r.Error:
        entity, key = update.entity, _key(update.entity)
        self.calls.append(f"{p4r.Update.Type.Name(update.type)} {entity.WhichOneof('entity')}")
        if entity.table_entry.table_id == self.rejected_table != 0:
            return p4r.Error(canonical_code=rpc_code.RESOURCE_EXHAUSTED, message="table full")
        if entity.table_entry.is_default_action:
            self.entities[key] = entity
        elif update.type == p4r.Update.INSERT:
            if key in self.entities:
                return p4r.Error(canonical_code=rpc_code.ALREADY_EXISTS, message="exists")
            self.entities[key] = entity
        elif key not in self.entities:
            return p4r.Error(canonical_code=rpc_code.NOT_FOUND, message="not there")
        elif update.type == p4r.Update.MODIFY:
            self.entities[key] = entity
        else:
            del self.entities[key]
        return p4r.Error()

    async def Read(self, request: Any, context: Any) -> AsyncIterator[p4r.ReadResponse]:
        if self.config is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, NO_PIPELINE)
        yield p4r.ReadResponse(entities=[e for wanted in request.entities for e in self._read(wanted)])

    def _read(self, wanted: p4r.Entity) -> list[p4r.Entity]:
        kind = wanted.WhichOneof("entity")
        if kind in ("counter_entry", "direct_counter_entry"):
            answer = p4r.Entity()
            answer.CopyFrom(wanted)
            getattr(answer, kind).data.packet_count = 0
            return [answer]
        return [
            entity
            for entity in self.entities.values()
            if entity.WhichOneof("entity") == kind
            and entity.table_entry.table_id == wanted.table_entry.table_id
            and not entity.table_entry.is_default_action
        ]

    def count(self, table_id: int) -> int:
        """Entries of a table."""
        return sum(
            e.table_entry.table_id == table_id and not e.table_entry.is_default_action
            for e in self.entities.values()
        )

    def groups(self) -> set[int]:
        """Multicast groups."""
        return {
            e.packet_replication_engine_entry.multicast_group_entry.multicast_group_id
            for e in self.entities.values()
            if e.HasField("packet_replication_engine_entry")
        }


def _key(entity: p4r.Entity) -> bytes:
    key = p4r.Entity()
    if entity.HasField("table_entry"):
        key.table_entry.table_id = entity.table_entry.table_id
        key.table_entry.is_default_action = entity.table_entry.is_default_action
        key.table_entry.match.extend(sorted(entity.table_entry.match, key=lambda m: m.field_id))
    else:
        group = entity.packet_replication_engine_entry.multicast_group_entry.multicast_group_id
        key.packet_replication_engine_entry.multicast_group_entry.multicast_group_id = group
    return key.SerializeToString(deterministic=True)
