"""DistributedDataParallel as users run it: ``python ddp.py CASE`` under torchrun's variables.

Trains the same small model once through the group under test and once through plain Gloo, from the same
seed and data, and prints ``same`` when the weights agree within the sums' error bound, and how many
all-reduces went through the switch.
"""

import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.distributed as dist
from group import RANK, SIZE, calls, fallbacks, init, session
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS = 6
WIDTH = 64
TOLERANCE = 1e-4

Wrap = Callable[[nn.Module, dist.ProcessGroup], DistributedDataParallel]


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(WIDTH, 200), nn.BatchNorm1d(200), nn.Tanh(), nn.Linear(200, 3))


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step * SIZE + RANK)
    return torch.randn(16, WIDTH, generator=generator), torch.randn(16, 3, generator=generator)


def plain_group() -> dist.ProcessGroup:
    """A process group whose backend is torch's own Gloo."""
    store = dist.PrefixStore("plain", dist.distributed_c10d._get_default_store())
    group = dist.ProcessGroup(store, RANK, SIZE)
    group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
    gloo = dist.ProcessGroupGloo(store, RANK, SIZE)
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
    group._set_group_name("plain")
    dist.distributed_c10d._world.pg_map[group] = ("gloo", store)
    dist.distributed_c10d._world.pg_names[group] = "plain"
    dist.distributed_c10d._world.pg_group_ranks[group] = {rank: rank for rank in range(SIZE)}
    return group


def train(
    wrap: Wrap, group: dist.ProcessGroup, accumulate: int = 1, zero: bool = False, steps: int = STEPS
) -> nn.Module:
    ddp = wrap(model(), group)
    if zero:
        optimizer = ZeroRedundancyOptimizer(
            ddp.parameters(), torch.optim.SGD, process_group=group, lr=0.05, momentum=0.9
        )
    else:
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        inputs, targets = batch(step)
        last = (step + 1) % accumulate == 0
        with nullcontext() if last else ddp.no_sync():
            nn.functional.mse_loss(ddp(inputs), targets).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    return ddp.module


def distance(left: nn.Module, right: nn.Module) -> float:
    pairs = zip(left.parameters(), right.parameters(), strict=True)
    return max((a - b).abs().max().item() for a, b in pairs)


def ddp(**options) -> Wrap:
    return lambda module, group: DistributedDataParallel(module, process_group=group, **options)


def with_hook(hook: Callable, state: Callable[[dist.ProcessGroup], object]) -> Wrap:
    def wrap(module: nn.Module, group: dist.ProcessGroup) -> DistributedDataParallel:
        wrapped = DistributedDataParallel(module, process_group=group, bucket_cap_mb=0.02)
        wrapped.register_comm_hook(state(group), hook)
        return wrapped

    return wrap


def with_builtin_hook(module: nn.Module, group: dist.ProcessGroup) -> DistributedDataParallel:
    wrapped = DistributedDataParallel(module, process_group=group)
    wrapped._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    return wrapped


def power_sgd(group: dist.ProcessGroup) -> powerSGD_hook.PowerSGDState:
    return powerSGD_hook.PowerSGDState(
        process_group=group, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=0.5
    )


CASES: dict[str, tuple[Wrap, dict]] = {
    "plain": (ddp(), {}),
    "many_buckets": (ddp(bucket_cap_mb=0.01), {}),
    "bucket_views": (ddp(gradient_as_bucket_view=True), {}),
    "static_graph": (ddp(static_graph=True), {}),
    "unused_parameters": (ddp(find_unused_parameters=True), {}),
    "accumulation": (ddp(), {"accumulate": 3}),
    "zero_redundancy": (ddp(), {"zero": True}),
    "fp16_hook": (with_hook(default_hooks.fp16_compress_hook, lambda group: group), {}),
    "builtin_fp16_hook": (with_builtin_hook, {}),
    "power_sgd_hook": (with_hook(powerSGD_hook.powerSGD_hook, power_sgd), {}),
}
LOSSY = {"fp16_hook", "builtin_fp16_hook", "power_sgd_hook"}
"""Hooks that round to 16 bits or iterate on their own errors amplify a difference in the last place."""


def data_loader_workers() -> None:
    """Forked data loader workers beside the backend's threads."""
    data = TensorDataset(torch.arange(64.0).unsqueeze(1))
    sampler = DistributedSampler(data, SIZE, RANK, shuffle=False)
    total = torch.zeros(1)
    for _ in range(2):
        for (values,) in DataLoader(data, 8, sampler=sampler, num_workers=2, multiprocessing_context="fork"):
            part = values.sum().reshape(1)
            dist.all_reduce(part)
            total += part
    assert total.item() == 2 * 63 * 32, total
    print("data_loader_workers same", flush=True)


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    init(sys.argv[1])
    reference = plain_group()
    assert session().attached, session().reason
    for name, (wrap, options) in CASES.items():
        before = calls()
        mine = train(wrap, dist.group.WORLD, **options)
        used = calls() - before
        theirs = train(wrap, reference, **options)
        off = distance(mine, theirs)
        tolerance = 0.02 if name in LOSSY else TOLERANCE
        print(
            name,
            "same" if off <= tolerance else f"off by {off:.3g}",
            "switch" if used else "gloo",
            flush=True,
        )
    data_loader_workers()
    # PowerSGD also reduces empty tensors.
    reduced_by_gloo = {reason for collective, reason in fallbacks() if collective == "allreduce"}
    assert reduced_by_gloo <= {"empty tensor"}, reduced_by_gloo
    dist.destroy_process_group()
    print("finished", flush=True)


if __name__ == "__main__":
    main()
