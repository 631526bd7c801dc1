"""One forwarding-pipeline config and everything that controllers wrote into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.message import Message

from ..core import SwitchCore
from ..core_library import SwitchError
from ..instance import Instance
from ..native_cache import CompilationFailed, CompilerNotFound
from ..translator import MalformedProgram, Program, TranslationError, load_program
from .cells import Cells
from .errors import failed_precondition, internal, invalid_argument, not_found, unimplemented
from .packet_io import packet_in_message, packet_out_frame
from .protos import p4r
from .replication import Replication
from .schema import Schema
from .tables import Tables

Compile = Callable[[Program], Path]
"""Compiles a program, or finds it in the cache; raises as ``build_pipeline`` does."""

_UPDATES = (p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE)

# Kinds of entity of which no program has any, since programs that use them are refused: what they are,
# and the field that names the object (0: all of them).
_ABSENT = {
    "extern_entry": ("externs", "extern_type_id"),
    "action_profile_member": ("action profiles", "action_profile_id"),
    "action_profile_group": ("action profiles", "action_profile_id"),
    "meter_entry": ("meters", "meter_id"),
    "direct_meter_entry": ("meters", None),
    "value_set_entry": ("parser value sets", "value_set_id"),
    "digest_entry": ("digests", "digest_id"),
}


@dataclass
class VerifiedConfig:
    """A config that the switch can run: checked, compiled, not yet loaded."""

    config: p4r.ForwardingPipelineConfig
    schema: Schema = field(repr=False)
    shared_object: Path


def verify(config: p4r.ForwardingPipelineConfig, compile_program: Compile) -> VerifiedConfig:
    """Checks P4Info and device config (BMv2 JSON) against each other and compiles.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT if the config cannot be realised, with the reason.
    """
    if not config.HasField("p4info") or not config.p4_device_config:
        raise invalid_argument("the config needs a P4Info and a p4_device_config (BMv2 JSON)")
    try:
        program = load_program(config.p4_device_config)
        schema = Schema(config.p4info, program)
        shared_object = compile_program(program)
    except MalformedProgram as error:
        raise invalid_argument(f"p4_device_config is not BMv2 JSON: {error}") from error
    except TranslationError as error:
        raise invalid_argument(str(error)) from error
    except CompilerNotFound as error:
        raise failed_precondition(str(error)) from error
    except (CompilationFailed, OSError) as error:
        raise internal(f"cannot compile the program: {error}") from error
    kept = p4r.ForwardingPipelineConfig()
    kept.CopyFrom(config)
    return VerifiedConfig(kept, schema, shared_object)


class Forwarding:
    """A loaded pipeline instance with the state that reads and writes refer to."""

    def __init__(self, verified: VerifiedConfig, core: SwitchCore):
        self.config = verified.config
        self.schema = verified.schema
        try:
            self.instance: Instance = core.load(verified.shared_object)
        except SwitchError as error:
            raise internal(str(error)) from error
        self.tables = Tables(self.schema, self.instance)
        self.cells = Cells(self.schema, self.instance)
        self.replication = Replication(self.instance)

    def unload(self) -> None:
        self.instance.unload()

    def write(self, update: p4r.Update) -> None:
        """Applies one update; raises P4RuntimeError and changes nothing if it is refused."""
        if update.type not in _UPDATES:
            raise invalid_argument("an update is an INSERT, a MODIFY or a DELETE")
        entity = update.entity
        kind = entity.WhichOneof("entity")
        if kind == "table_entry":
            self.tables.write(update.type, entity.table_entry)
        elif kind == "counter_entry":
            self.cells.write_counter(update.type, entity.counter_entry)
        elif kind == "direct_counter_entry":
            self.tables.write_direct_counter(update.type, entity.direct_counter_entry)
        elif kind == "register_entry":
            self.cells.write_register(update.type, entity.register_entry)
        elif kind == "packet_replication_engine_entry":
            self.replication.write(update.type, entity.packet_replication_engine_entry)
        elif kind is None:
            raise invalid_argument("an entity must be set")
        else:
            raise unimplemented(f"the embedded switch has no {_ABSENT[kind][0]}")

    def read(self, entity: p4r.Entity) -> Iterator[p4r.Entity]:
        """What one request of a Read selects."""
        kind = entity.WhichOneof("entity")
        if kind == "table_entry":
            found = self.tables.read(entity.table_entry)
        elif kind == "counter_entry":
            found = self.cells.read_counters(entity.counter_entry)
        elif kind == "direct_counter_entry":
            found = self.tables.read_direct_counters(entity.direct_counter_entry.table_entry)
        elif kind == "register_entry":
            found = self.cells.read_registers(entity.register_entry)
        elif kind == "packet_replication_engine_entry":
            found = self.replication.read(entity.packet_replication_engine_entry)
        elif kind is None:
            raise invalid_argument("an entity must be set")
        else:
            _check_absent(kind, getattr(entity, kind))
            return
        for message in found:
            yield p4r.Entity(**{kind: message})

    def packet_out(self, message: p4r.PacketOut) -> bytes:
        return packet_out_frame(self.schema.packet_out, message)

    def packet_in(self, frame: bytes) -> p4r.PacketIn | None:
        return packet_in_message(self.schema.packet_in, frame)


def _check_absent(kind: str, wanted: Message) -> None:
    """A read of all of something that is not there finds nothing; a read of one is refused."""
    what, name = _ABSENT[kind]
    object_id = getattr(wanted, name) if name else wanted.table_entry.table_id
    if object_id:
        raise not_found(f"id {object_id:#x} is unknown: the embedded switch has no {what}")
