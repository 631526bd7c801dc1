"""What can go wrong between the controller and a switch, and why a job can be refused."""

from finsy import P4ClientError
from finsy.grpcutil import GRPCStatusCode


class Refusal(Exception):
    """The job cannot be admitted.  The message is one sentence for the user: what, and what to do."""


class UnknownMember(Exception):
    """A ticket that belongs to no member of a job this controller knows."""


class SwitchError(Exception):
    """A request to a switch failed: the one exception that sessions raise.

    ``update`` is the first update of a failed write that the switch rejected (text of the P4Runtime
    message), empty when the request failed as a whole.
    """

    def __init__(self, switch: str, operation: str, why: str, *, code: GRPCStatusCode, update: str = ""):
        rejected = f" (update: {update})" if update else ""
        super().__init__(f"switch {switch}: {operation} failed: {why}{rejected}")
        self.switch = switch
        self.operation = operation
        self.why = why
        self.code = code
        self.update = update

    @classmethod
    def from_client_error(cls, switch: str, operation: str, error: P4ClientError) -> "SwitchError":
        """Wrap finsy's exception; of several rejected updates the first is named."""
        code, why, update = error.code, error.message or error.code.name, ""
        if error.details:
            first = error.details[min(error.details)]
            code, why = first.canonical_code, first.message or first.canonical_code.name
            update = " ".join(str(first.subvalue).split())[:400]
        return cls(switch, operation, why, code=code, update=update)

    @classmethod
    def disconnected(cls, switch: str, operation: str) -> "SwitchError":
        """The connection is down, or went down before the reply."""
        return cls(switch, operation, "the connection is down", code=GRPCStatusCode.UNAVAILABLE)

    @property
    def is_disconnected(self) -> bool:
        """The switch cannot be reached; the controller reconnects by itself."""
        return self.code in (GRPCStatusCode.UNAVAILABLE, GRPCStatusCode.CANCELLED)

    @property
    def is_timeout(self) -> bool:
        """The switch did not answer in time."""
        return self.code == GRPCStatusCode.DEADLINE_EXCEEDED

    @property
    def is_not_found(self) -> bool:
        """The entry to change or delete is not there."""
        return self.code == GRPCStatusCode.NOT_FOUND

    @property
    def is_already_there(self) -> bool:
        """The entry to insert is there already."""
        return self.code == GRPCStatusCode.ALREADY_EXISTS

    @property
    def is_full(self) -> bool:
        """The table or replication engine has no room."""
        return self.code == GRPCStatusCode.RESOURCE_EXHAUSTED

    @property
    def is_pipeline_missing(self) -> bool:
        """The switch runs no program."""
        return self.code == GRPCStatusCode.FAILED_PRECONDITION and "pipeline" in self.why.lower()

    @property
    def is_not_primary(self) -> bool:
        """Another controller is the primary."""
        return self.code == GRPCStatusCode.PERMISSION_DENIED
