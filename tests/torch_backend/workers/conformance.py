"""One process group, many checks against plain Gloo: ``python conformance.py`` under torchrun's variables.

Prints one JSON line per check: name and traceback (null: it passed).  All checks run on all ranks, in
order, whatever became of the ones before.
"""

import io
import json
import sys
import traceback
from collections.abc import Callable

import torch
import torch.distributed as dist
from group import RANK, SIZE, PlainGloo, calls, fallbacks, init, session

CHECKS: dict[str, Callable[[PlainGloo], None]] = {}


def check(function: Callable[[PlainGloo], None]) -> Callable[[PlainGloo], None]:
    CHECKS[function.__name__] = function
    return function


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Unlike on every rank, the same in every run."""
    generator = torch.Generator().manual_seed(1000 * RANK + sum(shape))
    if dtype.is_floating_point:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)
    return torch.randint(0, 30, shape, generator=generator).to(dtype)


def same_on_all_ranks(tensor: torch.Tensor) -> None:
    gathered = [torch.empty_like(tensor) for _ in range(SIZE)]
    dist.all_gather(gathered, tensor.contiguous())
    for other in gathered:
        assert torch.equal(other, tensor), "the result differs between ranks"


def close(result: torch.Tensor, expected: torch.Tensor) -> None:
    """Within the float32 error bound at 32-bit lanes: SIZE roundings relative to the largest summand."""
    assert result.shape == expected.shape and result.dtype == expected.dtype
    bound = max(expected.abs().max().item(), 8.0) * SIZE * 2.0**-23
    worst = (result.double() - expected.double()).abs().max().item()
    assert worst <= bound, f"off by {worst:.3g}, bound {bound:.3g}"


def through_switch(expected_calls: int, before: int) -> None:
    if session().attached:
        assert calls() - before == expected_calls, f"{calls() - before} calls instead of {expected_calls}"


@check
def float32_of_many_sizes(plain: PlainGloo) -> None:
    before = calls()
    sizes = (1, 3, 255, 4000, 4096, 100_003)
    for size in sizes:
        data = random(size)
        expected = plain.all_reduce(data)
        dist.all_reduce(data)
        close(data, expected)
        same_on_all_ranks(data)
    through_switch(len(sizes), before)


@check
def integers_are_exact(plain: PlainGloo) -> None:
    before = calls()
    dtypes = (torch.int8, torch.uint8, torch.int32, torch.int64)
    for dtype in dtypes:
        data = random(1000, dtype=dtype)
        expected = plain.all_reduce(data)
        dist.all_reduce(data)
        assert torch.equal(data, expected), dtype
    through_switch(len(dtypes), before)


@check
def integers_wrap_as_gloo_does(plain: PlainGloo) -> None:
    for dtype in (torch.int8, torch.int32, torch.int64):
        data = torch.full((7,), torch.iinfo(dtype).max - RANK, dtype=dtype)
        expected = plain.all_reduce(data)
        dist.all_reduce(data)
        assert torch.equal(data, expected), dtype


@check
def half_precision_and_double(plain: PlainGloo) -> None:
    before = calls()
    for dtype, steps in ((torch.float16, 2.0**-10), (torch.bfloat16, 2.0**-7), (torch.float64, 2.0**-45)):
        data = random(3000, dtype=dtype)
        expected = plain.all_reduce(data.double())
        dist.all_reduce(data)
        assert (data.double() - expected).abs().max() <= expected.abs().max() * steps, dtype
        same_on_all_ranks(data)
    through_switch(3, before)


@check
def average(plain: PlainGloo) -> None:
    before = calls()
    data = random(2000)
    expected = plain.all_reduce(data) / SIZE
    dist.all_reduce(data, op=dist.ReduceOp.AVG)
    close(data, expected)
    through_switch(1, before)


@check
def average_of_integers(plain: PlainGloo) -> None:
    """Also where Gloo, which has no AVG, has to do it."""
    for dtype in (torch.int8, torch.uint8, torch.int32, torch.int64):
        data = random(300, dtype=dtype) - (40 if dtype.is_signed else 0)
        expected = plain.all_reduce(data).long().div(SIZE, rounding_mode="trunc").to(dtype)
        dist.all_reduce(data, op=dist.ReduceOp.AVG)
        assert torch.equal(data, expected), dtype
        empty = torch.empty(0, dtype=dtype)
        dist.all_reduce(empty, op=dist.ReduceOp.AVG)


@check
def other_ops_go_to_gloo(plain: PlainGloo) -> None:
    before, counted = calls(), fallbacks()
    for op in (dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
        data = random(50)
        expected = plain.all_reduce(data, op)
        dist.all_reduce(data, op=op)
        assert torch.equal(data, expected), op
    bits = random(50, dtype=torch.int32)
    expected = plain.all_reduce(bits, dist.ReduceOp.BXOR)
    dist.all_reduce(bits, op=dist.ReduceOp.BXOR)
    assert torch.equal(bits, expected)
    through_switch(0, before)
    if session().attached:
        for name in ("MIN", "MAX", "PRODUCT", "BXOR"):
            key = ("allreduce", f"op {name}")
            assert fallbacks()[key] == counted.get(key, 0) + 1


@check
def complex_sums_as_pairs_of_floats(plain: PlainGloo) -> None:
    data = torch.complex(random(40), random(40) + 1)
    expected = torch.view_as_complex(plain.all_reduce(torch.view_as_real(data)))
    dist.all_reduce(data)
    close(torch.view_as_real(data), torch.view_as_real(expected))


@check
def sparse_goes_to_gloo(plain: PlainGloo) -> None:
    data = torch.sparse_coo_tensor(torch.tensor([[RANK, 5]]), torch.tensor([1.0, 2.0]), (8,))
    dist.all_reduce(data)
    expected = torch.zeros(8)
    expected[:SIZE] = 1.0
    expected[5] += 2.0 * SIZE
    assert torch.equal(data.to_dense(), expected)
    assert fallbacks()[("allreduce", "layout Sparse")] >= 1


@check
def nan_and_infinity_are_gloos(plain: PlainGloo) -> None:
    data = random(500)
    if RANK == 0:
        data[3], data[4] = float("nan"), float("inf")
    if RANK == SIZE - 1:
        data[5] = float("-inf")
    expected = plain.all_reduce(data)
    before = fallbacks()
    dist.all_reduce(data)
    assert torch.equal(data.nan_to_num(7.0, 8.0, 9.0), expected.nan_to_num(7.0, 8.0, 9.0))
    if session().attached:
        key = ("allreduce", "NaN or Inf in the input")
        assert fallbacks()[key] == before.get(key, 0) + 1
    finite = random(500)
    expected = plain.all_reduce(finite)
    dist.all_reduce(finite)
    close(finite, expected)


@check
def non_finite_average(plain: PlainGloo) -> None:
    data = random(20)
    data[0] = float("inf") if RANK == 0 else 1.0
    expected = plain.all_reduce(data) / SIZE
    dist.all_reduce(data, op=dist.ReduceOp.AVG)
    assert torch.equal(data, expected)


@check
def no_elements_and_no_dimensions(plain: PlainGloo) -> None:
    empty = torch.empty(0, 3)
    dist.all_reduce(empty)
    assert empty.shape == (0, 3)
    scalar = torch.tensor(RANK + 1.0)
    dist.all_reduce(scalar)
    assert scalar.item() == SIZE * (SIZE + 1) / 2


@check
def strided_views(plain: PlainGloo) -> None:
    for make in (
        lambda base: base[:, ::2],
        lambda base: base.t(),
        lambda base: base[3:7, 1:5],
        lambda base: base.flatten()[::3],
        lambda base: base.unfold(1, 2, 2),
    ):
        base = random(12, 10)
        untouched = base.clone()
        view = make(base)
        expected = plain.all_reduce(view)
        dist.all_reduce(view)
        close(view.contiguous(), expected)
        make(untouched).copy_(view)
        assert torch.equal(base, untouched), "elements outside the view changed"


@check
def strided_views_by_gloo(plain: PlainGloo) -> None:
    base = random(12, 10)
    view = base[::2, 1::3]
    expected = plain.all_reduce(view, dist.ReduceOp.MAX)
    dist.all_reduce(view, op=dist.ReduceOp.MAX)
    assert torch.equal(view, expected)
    base[0, 1] = float("nan")
    dist.all_reduce(view)
    assert view[0, 0].isnan() and not view[1:].isnan().any()


@check
def expanded_tensors_read_the_sum_everywhere(plain: PlainGloo) -> None:
    for shape in ((1,), (3, 1)):
        base = torch.full(shape, float(RANK + 1))
        view = base.expand(*shape[:-1], 5000)
        dist.all_reduce(view)
        assert (view == SIZE * (SIZE + 1) / 2).all()
    base = torch.full((1,), RANK + 1)
    view = base.expand(4)
    dist.all_reduce(view, op=dist.ReduceOp.MAX)
    assert (view == SIZE).all()


@check
def overlapping_windows_are_summed_once(plain: PlainGloo) -> None:
    base = random(20, dtype=torch.int64)
    expected = plain.all_reduce(base)
    windows = base.unfold(0, 4, 2)
    assert windows.numel() > base.numel()
    dist.all_reduce(windows)
    assert torch.equal(base, expected)


@check
def leaves_that_require_grad(plain: PlainGloo) -> None:
    leaf = random(10, 2)[:, 0].detach().requires_grad_()
    expected = plain.all_reduce(leaf.detach())
    dist.all_reduce(leaf)
    close(leaf.detach().contiguous(), expected)


@check
def asynchronous_calls_in_order(plain: PlainGloo) -> None:
    before = calls()
    data = [random(100 + i) for i in range(20)]
    expected = [plain.all_reduce(d) for d in data]
    works = [dist.all_reduce(d, async_op=True) for d in data]
    dist.barrier()
    for work in works:
        assert work.is_completed(), "a barrier ended before the calls made before it"
    for d, e, work in zip(data, expected, works, strict=True):
        assert work.wait()
        assert work.is_success()
        close(d, e)
    through_switch(20, before)


@check
def gloo_and_switch_interleave(plain: PlainGloo) -> None:
    # Falls back after its prelude while other collectives are under way.
    for i in range(30):
        poisoned = random(2000)
        if i % SIZE == RANK:
            poisoned[i] = float("inf")
        expected = plain.all_reduce(poisoned)
        root = torch.full((3,), float(RANK))
        work = dist.all_reduce(poisoned, async_op=True)
        dist.broadcast(root, src=i % SIZE)
        objects: list = [None] * SIZE
        dist.all_gather_object(objects, (i, RANK))
        work.wait()
        assert torch.equal(poisoned, expected)
        assert (root == i % SIZE).all()
        assert objects == [(i, rank) for rank in range(SIZE)]


@check
def futures_and_callbacks(plain: PlainGloo) -> None:
    data = random(64)
    expected = plain.all_reduce(data)
    work = dist.all_reduce(data, async_op=True)
    doubled = work.get_future().then(lambda future: future.value()[0] * 2)
    close(doubled.wait(), expected * 2)
    work.wait()
    assert work.get_future().done()
    assert work.get_future().value()[0] is not None
    assert torch.equal(work.result()[0], data)


@check
def callbacks_may_reduce_and_wait(plain: PlainGloo) -> None:
    def nested(depth: int) -> Callable:
        def callback(future: torch.futures.Future) -> torch.Tensor:
            value = future.value()[0]
            if depth == 0:
                return value
            again = torch.ones(10)
            inner = dist.all_reduce(again, async_op=True).get_future().then(nested(depth - 1))
            return inner.wait() + value

        return callback

    # Gloo runs callbacks on its two worker threads, so by itself it cannot nest any deeper.
    depth = 4 if session().attached else 1
    total = dist.all_reduce(torch.ones(10), async_op=True).get_future().then(nested(depth)).wait()
    assert torch.equal(total, torch.full((10,), (depth + 1.0) * SIZE))


@check
def failing_callbacks_fail_their_future(plain: PlainGloo) -> None:
    def callback(_: torch.futures.Future) -> None:
        raise KeyError("from the callback")

    future = dist.all_reduce(torch.ones(4), async_op=True).get_future().then(callback)
    try:
        future.wait()
    except Exception as error:
        assert "from the callback" in str(error)
    else:
        raise AssertionError("the callback's exception was lost")


@check
def coalesced_calls(plain: PlainGloo) -> None:
    before = calls()
    data = [random(10), random(3, 4), random(1000)[::2], torch.tensor(float(RANK))]
    expected = [plain.all_reduce(d) for d in data]
    with dist.distributed_c10d._coalescing_manager():
        for d in data:
            dist.all_reduce(d)
    for d, e in zip(data, expected, strict=True):
        close(d.contiguous(), e)
    through_switch(1, before)


@check
def functional_collectives(plain: PlainGloo) -> None:
    import torch.distributed._functional_collectives as functional

    data = random(30)
    expected = plain.all_reduce(data)
    result = functional.all_reduce(data, "sum", dist.group.WORLD)
    close(result + 0, expected)
    gathered = functional.all_gather_tensor(torch.tensor([float(RANK)]), 0, dist.group.WORLD)
    assert (gathered + 0).tolist() == [float(rank) for rank in range(SIZE)]


@check
def everything_else_is_gloos(plain: PlainGloo) -> None:
    ranks = [float(rank) for rank in range(SIZE)]
    mine = torch.tensor([float(RANK)])
    everyone = [torch.zeros(1) for _ in range(SIZE)]
    dist.all_gather(everyone, mine)
    assert [t.item() for t in everyone] == ranks
    flat = torch.zeros(SIZE)
    dist.all_gather_into_tensor(flat, mine)
    assert flat.tolist() == ranks
    dist.gather(mine, everyone if RANK == 0 else None, dst=0)
    part = torch.zeros(1)
    dist.scatter(part, [torch.tensor([10 * r]) for r in ranks] if RANK == 0 else None, src=0)
    assert part.item() == 10 * RANK
    dist.reduce(total := torch.ones(3), dst=0)
    assert RANK != 0 or (total == SIZE).all()
    dist.reduce_scatter(part, [torch.tensor([r]) for r in ranks])
    assert part.item() == SIZE * RANK
    dist.reduce_scatter_tensor(part, torch.tensor(ranks))
    assert part.item() == SIZE * RANK
    swapped = torch.zeros(SIZE)
    dist.all_to_all_single(swapped, torch.full((SIZE,), float(RANK)))
    assert swapped.tolist() == ranks
    out = [torch.zeros(1) for _ in range(SIZE)]
    dist.all_to_all(out, [torch.tensor([float(RANK)]) for _ in range(SIZE)])
    assert [t.item() for t in out] == ranks
    objects = [{"from": RANK}]
    dist.broadcast_object_list(objects, src=0)
    assert objects == [{"from": 0}]
    if SIZE > 1:
        after, previous = (RANK + 1) % SIZE, (RANK - 1) % SIZE
        send = dist.isend(mine, after, tag=3)
        received = torch.zeros(1)
        dist.recv(received, previous, tag=3)
        send.wait()
        assert received.item() == previous
        if RANK == 0:
            source = dist.recv(received)
            assert source == 1 and received.item() == 1
        elif RANK == 1:
            dist.send(mine, 0)
    dist.barrier()
    if dist.get_backend() == "gloo":  # torch asks for that name
        dist.monitored_barrier()
    assert any(collective == "broadcast" for collective, _ in fallbacks())


@check
def it_passes_for_gloo(plain: PlainGloo) -> None:
    from datetime import timedelta

    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert dist.get_backend() in ("gloo", "netreduce")
    assert isinstance(backend, dist.ProcessGroupGloo)
    assert isinstance(backend, dist.distributed_c10d.ProcessGroupGloo)
    assert backend.name() == dist.get_backend()
    assert backend.rank() == RANK and backend.size() == SIZE
    sequence = backend._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(2))
    assert backend._get_sequence_number_for_group() == sequence + 1
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=50))
    assert backend.options._timeout == timedelta(seconds=50)


@check
def subgroups_have_jobs_of_their_own(plain: PlainGloo) -> None:
    if SIZE < 3:
        return
    low, high = dist.new_group([0, 1]), dist.new_group([SIZE - 2, SIZE - 1])
    for group, members in ((low, (0, 1)), (high, (SIZE - 2, SIZE - 1))):
        if RANK not in members:
            continue
        data = torch.full((5,), float(RANK))
        dist.all_reduce(data, group=group)
        assert (data == sum(members)).all()
        assert session(group).attached == session().attached
        assert calls(group) == (1 if session().attached else 0)
        dist.destroy_process_group(group)
    data = torch.ones(3)
    dist.all_reduce(data)
    assert (data == SIZE).all()


@check
def model_saved_and_loaded_by_rank_zero(plain: PlainGloo) -> None:
    model = torch.nn.Linear(3, 2)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    state = [buffer.getvalue() if RANK == 0 else None]
    dist.broadcast_object_list(state, src=0)
    model.load_state_dict(torch.load(io.BytesIO(state[0])))
    same_on_all_ranks(model.weight.detach())


def main() -> None:
    init(sys.argv[1] if len(sys.argv) > 1 else "gloo")
    plain = PlainGloo()
    print(json.dumps({"attached": session().attached, "reason": session().reason}), flush=True)
    for name, function in CHECKS.items():
        error = None
        try:
            function(plain)
        except Exception:
            error = traceback.format_exc()
        print(json.dumps({"check": name, "error": error}), flush=True)
    dist.destroy_process_group()
    print(json.dumps({"finished": True}), flush=True)


if __name__ == "__main__":
    main()
