"""What every worker script shares: the process group under test, and a plain Gloo one to compare with."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
SIZE = int(os.environ["WORLD_SIZE"])
CPU = torch.device("cpu")


def init(backend: str = "gloo", timeout: timedelta = timedelta(seconds=60)) -> None:
    """Join the default group as torchrun's scripts do."""
    dist.init_process_group(backend, timeout=timeout)


def session(group: dist.ProcessGroup | None = None):
    """The native session behind ``group`` (default: the default group)."""
    backend = (group or dist.group.WORLD)._get_backend(CPU)
    return backend.session


def calls(group: dist.ProcessGroup | None = None) -> int:
    """All-reduces that went through the switch so far."""
    return session(group).statistics()["calls"]


def fallbacks(group: dist.ProcessGroup | None = None) -> dict[tuple[str, str], int]:
    """Calls that Gloo did, by (collective, reason)."""
    return {(collective, reason): n for collective, reason, n, _ in session(group).fallbacks()}


class PlainGloo:
    """torch's own Gloo over all ranks, beside the group under test."""

    def __init__(self) -> None:
        store = dist.PrefixStore("plain", dist.distributed_c10d._get_default_store())
        self._backend = dist.ProcessGroupGloo(store, RANK, SIZE, timeout=timedelta(seconds=60))

    def all_reduce(self, tensor: torch.Tensor, op: dist.ReduceOp = dist.ReduceOp.SUM) -> torch.Tensor:
        """Sum (or ``op``) of a copy of ``tensor`` over all ranks; contiguous."""
        result = tensor.clone(memory_format=torch.contiguous_format)
        options = dist.AllreduceOptions()
        options.reduceOp = op
        self._backend.allreduce([result], options).wait()
        return result
