"""Random all-reduces on several groups at once, against the sum of known inputs: ``random_calls.py SEED``.

Every rank draws the same plan from the seed and knows all ranks' inputs, so each result is compared, bit by
bit, with what the payloads' own arithmetic makes of them without a switch.  Prints ``COUNT calls``.
"""

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from group import RANK, SIZE, init, session

sys.path.insert(0, str(Path(__file__).parents[2] / "host_agent"))
import local_sum

from netreduce.host_agent._datapath import DType, ReduceOp

CALLS = 150
PENDING = 10
DTYPES = {
    torch.float32: DType.float32,
    torch.float16: DType.float16,
    torch.bfloat16: DType.bfloat16,
    torch.float64: DType.float64,
    torch.int8: DType.int8,
    torch.uint8: DType.uint8,
    torch.int32: DType.int32,
    torch.int64: DType.int64,
}
OPS = {dist.ReduceOp.SUM: ReduceOp.SUM, dist.ReduceOp.AVG: ReduceOp.AVG}
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": torch.clone,
    "offset": lambda flat: torch.cat([flat[:3], flat])[min(3, flat.numel()) :],
    "strided": lambda flat: flat.repeat_interleave(3)[::3],
    "transposed": lambda flat: torch.stack([flat, flat]).t().contiguous().t()[1],
    "expanded": lambda flat: flat.clone().expand(2, -1),
    "gradient": lambda flat: flat.clone().requires_grad_(flat.is_floating_point()),
}


@dataclass(frozen=True)
class Plan:
    """One call, the same on all its ranks."""

    group: int
    dtype: torch.dtype
    elements: int
    values: str
    op: dist.ReduceOp
    layout: str
    asynchronous: bool
    seed: int


def draw(choose: random.Random, groups: int) -> Plan:
    return Plan(
        choose.randrange(groups),
        choose.choice(list(DTYPES)),
        choose.choice([1, 2, choose.randint(1, 300), choose.randint(1, 30_000)]),
        choose.choice(["normal", "extreme", "constant", "zero"]),
        choose.choice(list(OPS)),
        choose.choice(list(LAYOUTS)),
        choose.random() < 0.6,
        choose.randrange(1 << 30),
    )


def contribution(plan: Plan, rank: int) -> torch.Tensor:
    """What ``rank`` brings to a call; one-dimensional."""
    numbers = np.random.default_rng([plan.seed, rank])
    if plan.values == "zero":
        return torch.zeros(plan.elements, dtype=plan.dtype)
    if plan.values == "constant":
        return torch.full((plan.elements,), 1 + rank, dtype=plan.dtype)
    if plan.dtype.is_floating_point:
        values = numbers.standard_normal(plan.elements)
        if plan.values == "extreme":  # from subnormals to numbers whose sum overflows
            tiny, huge = np.log2(torch.finfo(plan.dtype).tiny), np.log2(torch.finfo(plan.dtype).max)
            values = np.sign(values) * np.exp2(numbers.uniform(tiny - 4, huge, plan.elements))
        return torch.from_numpy(values).to(plan.dtype)
    limits = torch.iinfo(plan.dtype)
    low, high = (limits.min, limits.max) if plan.values == "extreme" else (max(-9, limits.min), 9)
    values = numbers.integers(low, high, plan.elements, dtype=np.int64, endpoint=True)
    return torch.from_numpy(values).to(plan.dtype)


def bits(tensor: torch.Tensor) -> np.ndarray:
    """The elements for numpy, which has no bfloat16."""
    return (tensor.view(torch.int16) if tensor.dtype is torch.bfloat16 else tensor).numpy().copy()


def expected(plan: Plan, ranks: list[int]) -> np.ndarray:
    arrays = [bits(contribution(plan, rank)) for rank in ranks]
    wide = plan.dtype in (torch.float64, torch.int64)
    local_sum.reduce(arrays, lane_bits=64 if wide else 32, op=OPS[plan.op], dtype=DTYPES[plan.dtype])
    return arrays[0]


def main() -> None:
    init()
    choose = random.Random(int(sys.argv[1]))
    members = [list(range(SIZE)), list(range(SIZE)), [0, 1], list(range(1, SIZE))]
    groups = [dist.new_group(ranks) for ranks in members]
    assert all(session(groups[i]).attached for i, ranks in enumerate(members) if RANK in ranks)
    pending: list[Callable[[], None]] = []
    made = 0
    for _ in range(CALLS):
        plan, drain = draw(choose, len(groups)), choose.random() < 0.2
        ranks = members[plan.group]
        if RANK in ranks:
            tensor = LAYOUTS[plan.layout](contribution(plan, RANK))
            with torch.no_grad():
                work = dist.all_reduce(
                    tensor, op=plan.op, group=groups[plan.group], async_op=plan.asynchronous
                )
            made += 1

            def check(plan=plan, ranks=ranks, tensor=tensor, work=work) -> None:
                if work is not None:
                    work.wait()
                for row in tensor.detach().reshape(-1, plan.elements):
                    got = bits(row.clone(memory_format=torch.contiguous_format))
                    assert got.tobytes() == expected(plan, ranks).tobytes(), plan

            pending.append(check)
        if drain or len(pending) > PENDING:
            random.Random(RANK).shuffle(pending)
            while pending:
                pending.pop()()
    for check in pending:
        check()
    print(made, "calls", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
