"""Starts one worker script per rank, as torchrun would, and collects what became of each."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

WORKERS = Path(__file__).parent / "workers"


@dataclass(frozen=True)
class Result:
    """How one rank ended."""

    rank: int
    code: int | None
    """Exit code; None: it had to be killed because it did not end in time."""
    out: str
    err: str


class Ranks:
    """The worker processes of one process group.  A context manager: leaving it kills what still runs.

    Args:
        script: file name in ``workers/`` and its arguments.
        world_size: number of ranks.
        environment: variables for all ranks, or a sequence with one mapping per rank.
    """

    def __init__(
        self,
        script: Sequence[str],
        world_size: int,
        environment: Mapping[str, str] | Sequence[Mapping[str, str]],
    ) -> None:
        per_rank = [environment] * world_size if isinstance(environment, Mapping) else list(environment)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("NETREDUCE_")}
        port = _free_port()
        self.processes = [
            subprocess.Popen(
                [sys.executable, str(WORKERS / script[0]), *script[1:]],
                env={
                    **inherited,
                    "OMP_NUM_THREADS": "1",
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": str(world_size),
                    **per_rank[rank],
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(world_size)
        ]

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def kill(self, rank: int) -> None:
        """End one rank as the kernel's out-of-memory killer would."""
        self.processes[rank].send_signal(signal.SIGKILL)

    def wait(self, seconds: float) -> list[Result]:
        """Results by rank; whoever has not ended after ``seconds`` is killed."""
        deadline = time.monotonic() + seconds
        results = []
        for rank, process in enumerate(self.processes):
            try:
                out, err = process.communicate(timeout=max(deadline - time.monotonic(), 0.1))
                results.append(Result(rank, process.returncode, out, err))
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                results.append(Result(rank, None, out, err))
        return results


def run(
    script: Sequence[str],
    world_size: int,
    environment: Mapping[str, str] | Sequence[Mapping[str, str]],
    seconds: float = 90,
) -> list[Result]:
    """Run all ranks of ``script`` to their ends."""
    with Ranks(script, world_size, environment) as ranks:
        return ranks.wait(seconds)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
