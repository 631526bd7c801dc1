"""Everything that can be set about a controller."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from netreduce.p4.wire import MAX_WINDOW


@dataclass(frozen=True)
class ControllerOptions:
    """Options of one controller.  Raises ValueError for a window the slot protocol cannot use."""

    topology: Path
    "Topology file (YAML)."

    listen: str = "127.0.0.1:50060"
    "Where agents and operators connect, host:port; port 0 picks a free one."

    window: int = MAX_WINDOW
    "Packets a rank may have outstanding: a power of two up to MAX_WINDOW. A stream uses twice as many slots."

    lease: timedelta = timedelta(seconds=60)
    "A member whose process answers nothing for so long, or that does not attend, is taken for dead."

    join_timeout: timedelta = timedelta(seconds=60)
    "How long ranks wait for each other when their requests do not say."

    orphan_idle: timedelta = timedelta(minutes=10)
    "Entries that an earlier controller left are removed after so long without a packet."

    unreachable_limit: timedelta = timedelta(seconds=30)
    "Jobs are aborted when their switch cannot be reached for so long."

    startup_wait: timedelta = timedelta(seconds=20)
    "How long the announcement of readiness waits for switches that cannot be reached."

    pipeline_timeout: timedelta = timedelta(seconds=180)
    "For loading the P4 program: the embedded switch may have to compile it."

    p4info: Path | None = None
    "P4Info of the program; default: the packaged one."

    p4blob: Path | None = None
    "BMv2 JSON of the program; default: the packaged one."

    finished_jobs: int = 200
    "Finished jobs that are remembered."

    def __post_init__(self) -> None:
        if not 1 <= self.window <= MAX_WINDOW or self.window & (self.window - 1):
            raise ValueError(f"window {self.window} is not a power of two between 1 and {MAX_WINDOW}")
