"""Loads the P4 program into a switch, unless the switch already runs it."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import finsy as fy
import grpc
from finsy.grpcutil import grpc_channel
from finsy.p4schema import P4Schema
from finsy.proto import U128, p4r, p4r_grpc

from netreduce.controller.errors import SwitchError
from netreduce.controller.log import logger
from netreduce.p4 import artifacts

LOG = logger(__name__)
REQUEST_TIMEOUT = timedelta(seconds=10)
REQUIRED_TABLES = ("connection", "forward", "rewrite")


class ProgramError(Exception):
    """The P4 program's artefacts are missing or of another program."""


@dataclass(frozen=True)
class Program:
    """The compiled P4 program."""

    schema: P4Schema

    @property
    def name(self) -> str:
        """Name and version from the P4Info."""
        return " ".join(filter(None, (self.schema.name, self.schema.version)))


def load_program(p4info: Path | None = None, p4blob: Path | None = None) -> Program:
    """Read the artefacts (default: the packaged ones).  Raises ProgramError."""
    try:
        p4info, p4blob = p4info or artifacts.p4info(), p4blob or artifacts.bmv2_json()
    except FileNotFoundError as error:
        raise ProgramError(str(error)) from error
    try:
        schema = P4Schema(p4info, p4blob)
        for table in REQUIRED_TABLES:
            schema.tables[table]
    except OSError as error:
        raise ProgramError(f"{error.filename} cannot be read: {error.strerror}") from error
    except Exception as error:
        raise ProgramError(f"{p4info} is not the P4Info of the NetReduce program: {error}") from error
    return Program(schema)


async def ensure_pipeline(switch: fy.Switch, program: Program, timeout: timedelta) -> bool:
    """Make the switch run the program; True when it already did and was left alone.

    ``timeout`` is for loading.  A channel of its own is used because finsy's requests have a fixed
    deadline that is too short for a switch that compiles.  Raises SwitchError.
    """
    async with grpc_channel(switch.address) as channel:
        stub = p4r_grpc.P4RuntimeStub(channel)
        running = await _cookie(stub, switch)
        if running == program.schema.p4cookie:
            LOG.info("the switch already runs %s (cookie %#x)", program.name, running)
            return True
        if running is not None:
            LOG.warning("the switch runs another program (cookie %#x), which is replaced", running)
            # BMv2 keeps multicast groups when a program is loaded, but forgets that they are there.
            await _delete_groups(stub, switch)
        LOG.info("loading %s (cookie %#x)", program.name, program.schema.p4cookie)
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=switch.device_id,
            election_id=U128.encode(switch.election_id),
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=program.schema.get_pipeline_config(),
        )
        await _call(
            switch,
            "loading the program",
            stub.SetForwardingPipelineConfig(request, timeout=timeout.total_seconds()),
        )
        return False


async def _cookie(stub: p4r_grpc.P4RuntimeStub, switch: fy.Switch) -> int | None:
    """Cookie of the running program; None when there is no program."""
    request = p4r.GetForwardingPipelineConfigRequest(
        device_id=switch.device_id, response_type=p4r.GetForwardingPipelineConfigRequest.COOKIE_ONLY
    )
    call = stub.GetForwardingPipelineConfig(request, timeout=REQUEST_TIMEOUT.total_seconds())
    try:
        reply = await _call(switch, "reading the program's cookie", call)
    except SwitchError as error:
        if error.is_pipeline_missing or error.is_not_found:
            return None
        raise
    return reply.config.cookie.cookie if reply.config.HasField("cookie") else None


async def _delete_groups(stub: p4r_grpc.P4RuntimeStub, switch: fy.Switch) -> None:
    wildcard = p4r.Entity(
        packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(
            multicast_group_entry=p4r.MulticastGroupEntry()
        )
    )
    request = p4r.ReadRequest(device_id=switch.device_id, entities=[wildcard])
    try:
        entities = [
            entity
            async for reply in stub.Read(request, timeout=REQUEST_TIMEOUT.total_seconds())
            for entity in reply.entities
        ]
    except grpc.aio.AioRpcError as error:
        raise _error(switch, "reading multicast groups", error) from error
    if entities:
        write = p4r.WriteRequest(
            device_id=switch.device_id,
            election_id=U128.encode(switch.election_id),
            updates=[p4r.Update(type=p4r.Update.DELETE, entity=entity) for entity in entities],
        )
        call = stub.Write(write, timeout=REQUEST_TIMEOUT.total_seconds())
        await _call(switch, "deleting multicast groups", call)


async def _call(switch: fy.Switch, operation: str, call: grpc.aio.UnaryUnaryCall):
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise _error(switch, operation, error) from error


def _error(switch: fy.Switch, operation: str, error: grpc.aio.AioRpcError) -> SwitchError:
    return SwitchError.from_client_error(switch.name, operation, fy.P4ClientError(error, operation))
