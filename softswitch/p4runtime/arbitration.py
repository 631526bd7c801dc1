"""Which controller may write (Client Arbitration and Controller Replication).

Only the default role exists: every controller sees the whole pipeline, and at most one of them, the
primary, may change it.
"""

from __future__ import annotations

from typing import Protocol

from .errors import failed_precondition, invalid_argument, not_found, permission_denied, resource_exhausted
from .protos import p4r, rpc_code

MAX_STREAMS = 16


def u128(value: p4r.Uint128) -> int:
    return value.high << 64 | value.low


class Session(Protocol):
    """One controller's stream."""

    def send(self, message: p4r.StreamMessageResponse) -> None: ...


class Arbitration:
    """The live controllers of one device.  The caller serialises all calls."""

    def __init__(self, device_id: int):
        self._device_id = device_id
        self._sessions: dict[Session, int | None] = {}
        self._highest: int | None = None
        """The highest election id ever seen; whoever has it is the primary."""

    @property
    def primary(self) -> Session | None:
        if self._highest is None:
            return None
        return next((s for s, election in self._sessions.items() if election == self._highest), None)

    def update(self, session: Session, message: p4r.MasterArbitrationUpdate) -> None:
        """Handles one MasterArbitrationUpdate.  A P4RuntimeError ends the stream."""
        live = session in self._sessions
        if message.device_id != self._device_id:
            text = f"device {message.device_id} is unknown: this is device {self._device_id}"
            raise failed_precondition(text) if live else not_found(text)
        if message.role.name or message.role.HasField("config"):
            text = f"role '{message.role.name}': this switch has the default role only"
            raise failed_precondition(text) if live else invalid_argument(text)
        election = u128(message.election_id) if message.HasField("election_id") else None
        if election is not None and any(
            other == election for peer, other in self._sessions.items() if peer is not session
        ):
            raise invalid_argument(f"Election id {election} is already used by another controller")
        if not live and len(self._sessions) >= MAX_STREAMS:
            raise resource_exhausted(f"{MAX_STREAMS} controllers are connected already")

        before, highest_before = self.primary, self._highest
        self._sessions[session] = election
        if election is not None and (self._highest is None or election >= self._highest):
            self._highest = election
            if before is not session or highest_before != election:
                # The backups hear of the change before the primary does.
                for peer in self._sessions:
                    if peer is not session:
                        self._notify(peer)
            self._notify(session)
        elif before is session:
            self._notify_all()  # the primary stepped down
        else:
            self._notify(session)

    def leave(self, session: Session) -> None:
        """The stream is over."""
        if session not in self._sessions:
            return
        was_primary = self.primary is session
        del self._sessions[session]
        if was_primary:
            self._notify_all()

    def require_primary(self, request: p4r.WriteRequest | p4r.SetForwardingPipelineConfigRequest) -> None:
        """Raises NOT_FOUND for a role that does not exist, PERMISSION_DENIED for anyone but the primary."""
        if request.role:
            raise not_found(f"role '{request.role}': this switch has the default role only")
        if self.primary is None:
            raise permission_denied("there is no primary controller: send a MasterArbitrationUpdate first")
        if not request.HasField("election_id") or u128(request.election_id) != self._highest:
            raise permission_denied(f"only the primary may do this; its election id is {self._highest}")

    def _notify_all(self) -> None:
        for session in self._sessions:
            self._notify(session)

    def _notify(self, session: Session) -> None:
        update = p4r.MasterArbitrationUpdate(device_id=self._device_id)
        if self._highest is not None:
            update.election_id.high = self._highest >> 64
            update.election_id.low = self._highest & (1 << 64) - 1
        primary = self.primary
        if primary is session:
            update.status.code = rpc_code.OK
            update.status.message = "you are the primary"
        elif primary is not None:
            update.status.code = rpc_code.ALREADY_EXISTS
            update.status.message = "another controller is the primary"
        else:
            update.status.code = rpc_code.NOT_FOUND
            update.status.message = "there is no primary"
        session.send(p4r.StreamMessageResponse(arbitration=update))
