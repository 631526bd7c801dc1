"""Multicast groups and clone sessions (PacketReplicationEngineEntry)."""

from __future__ import annotations

from collections.abc import Iterator

from ..core_library import DROP_PORT
from ..instance import Instance
from ..pipeline_abi import ProgramError
from .errors import already_exists, from_program, invalid_argument, not_found, unimplemented
from .protos import p4r
from .values import decode

INSERT = p4r.Update.INSERT
DELETE = p4r.Update.DELETE

MAX_GROUP = 0xFFFF
"""v1model's ``mcast_grp`` has 16 bits."""
MAX_SESSION = 0x7FFF
"""As on BMv2, whose PI layer keeps the other half of the mirror session ids to itself."""
MAX_INSTANCE = 0xFFFF
"""v1model's ``egress_rid`` has 16 bits."""
PORT_BITS = 9


class Replication:
    """The replication engine of one loaded program."""

    def __init__(self, instance: Instance):
        self._instance = instance
        self._groups: dict[int, p4r.MulticastGroupEntry] = {}
        self._sessions: dict[int, p4r.CloneSessionEntry] = {}

    def write(self, update: int, entry: p4r.PacketReplicationEngineEntry) -> None:
        kind = entry.WhichOneof("type")
        if kind == "multicast_group_entry":
            self._write_group(update, entry.multicast_group_entry)
        elif kind == "clone_session_entry":
            self._write_session(update, entry.clone_session_entry)
        else:
            raise invalid_argument("a replication engine entry is a multicast group or a clone session")

    def _write_group(self, update: int, entry: p4r.MulticastGroupEntry) -> None:
        group = entry.multicast_group_id
        what = f"multicast group {group}"
        _check(update, group, MAX_GROUP, group in self._groups, what)
        replicas = [] if update == DELETE else _replicas(entry.replicas, what)
        # A group without replicas drops what is sent to it, as one that the data plane does not have.
        if replicas or (group in self._groups and self._groups[group].replicas):
            self._set("multicast_set", what, group, replicas)
        _store(self._groups, update, group, entry)

    def _write_session(self, update: int, entry: p4r.CloneSessionEntry) -> None:
        session = entry.session_id
        what = f"clone session {session}"
        _check(update, session, MAX_SESSION, session in self._sessions, what)
        replicas = []
        if update != DELETE:
            replicas = _replicas(entry.replicas, what)
            if entry.class_of_service:
                raise unimplemented(f"{what}: the embedded switch has no classes of service")
            if entry.packet_length_bytes < 0:
                raise invalid_argument(f"{what}: a packet length is not negative")
        if replicas or (session in self._sessions and self._sessions[session].replicas):
            self._set("clone_session_set", what, session, replicas, entry.packet_length_bytes)
        _store(self._sessions, update, session, entry)

    def _set(self, operation: str, what: str, *arguments) -> None:
        try:
            getattr(self._instance, operation)(*arguments)
        except ProgramError as error:
            raise from_program(error, what) from None

    def read(self, wanted: p4r.PacketReplicationEngineEntry) -> Iterator[p4r.PacketReplicationEngineEntry]:
        """One group or session, or all with id 0; nothing if it does not exist."""
        kind = wanted.WhichOneof("type")
        if kind == "multicast_group_entry":
            group = wanted.multicast_group_entry.multicast_group_id
            for found in _select(self._groups, group):
                yield p4r.PacketReplicationEngineEntry(multicast_group_entry=found)
        elif kind == "clone_session_entry":
            session = wanted.clone_session_entry.session_id
            for found in _select(self._sessions, session):
                yield p4r.PacketReplicationEngineEntry(clone_session_entry=found)
        else:
            raise invalid_argument("a replication engine entry is a multicast group or a clone session")


def _select(entries: dict, wanted: int) -> list:
    return list(entries.values()) if not wanted else [entries[wanted]] if wanted in entries else []


def _check(update: int, number: int, highest: int, exists: bool, what: str) -> None:
    if not 1 <= number <= highest:
        raise invalid_argument(f"{what}: ids are 1 to {highest}")
    if update == INSERT and exists:
        raise already_exists(f"{what} exists")
    if update != INSERT and not exists:
        raise not_found(f"{what} does not exist")


def _store(entries: dict, update: int, number: int, entry) -> None:
    if update == DELETE:
        del entries[number]
    else:
        kept = type(entry)()
        kept.CopyFrom(entry)
        entries[number] = kept


def _replicas(replicas, what: str) -> list[tuple[int, int]]:
    """(port, instance) of every replica."""
    pairs = []
    for replica in replicas:
        if replica.backup_replicas:
            raise unimplemented(f"{what}: the embedded switch has no backup replicas")
        kind = replica.WhichOneof("port_kind")
        if kind is None:
            raise invalid_argument(f"{what}: a replica needs a port")
        port = decode(replica.port, PORT_BITS, f"{what}, port") if kind == "port" else replica.egress_port
        if port > DROP_PORT:
            raise invalid_argument(f"{what}: port {port}, but ports are 0 to {DROP_PORT}")
        if replica.instance > MAX_INSTANCE:
            raise invalid_argument(f"{what}: instance {replica.instance} is above {MAX_INSTANCE}")
        pairs.append((port, replica.instance))
    if len(set(pairs)) != len(pairs):
        raise invalid_argument(f"{what}: two replicas have the same port and instance")
    return pairs
