"""One way for things to go wrong per run: ``python faults.py CASE`` under torchrun's variables.

Prints ``error: TYPE: MESSAGE`` where the case expects an exception, else whatever it says below.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from group import RANK, SIZE, init, session

CASES: dict[str, Callable[[], None]] = {}
HOUR = timedelta(hours=1)


def case(function: Callable[[], None]) -> Callable[[], None]:
    CASES[function.__name__] = function
    return function


def report(action: Callable[[], object]) -> None:
    """Run ``action``, which must raise, and print what it raised."""
    try:
        action()
    except RuntimeError as error:
        print(f"error: {type(error).__name__}: {error}", flush=True)
    else:
        print("no error", flush=True)


@case
def unlike_calls() -> None:
    """Each kind of disagreement in a group of its own."""
    init(timeout=HOUR)

    def differ(kind: str, tensor: torch.Tensor, op: dist.ReduceOp = dist.ReduceOp.SUM) -> None:
        group = dist.new_group(list(range(SIZE)), timeout=HOUR)
        print(kind, end=" ", flush=True)
        report(lambda: dist.all_reduce(tensor, op=op, group=group))
        print(kind, "later", end=" ", flush=True)
        report(lambda: dist.all_reduce(torch.ones(2), group=group))
        dist.destroy_process_group(group)

    differ("shapes", torch.ones(3, 4 + RANK))
    differ("dtypes", torch.ones(8, dtype=torch.float32 if RANK else torch.int32))
    differ("lane_widths", torch.ones(8, dtype=torch.float64 if RANK else torch.float32))
    differ("ops", torch.ones(8), dist.ReduceOp.AVG if RANK else dist.ReduceOp.SUM)
    differ("routes", torch.ones(8), dist.ReduceOp.MAX if RANK else dist.ReduceOp.SUM)
    differ("emptiness", torch.ones(5 * RANK))
    differ("gloo_sizes", torch.ones(8 + RANK), dist.ReduceOp.MAX)
    dist.all_reduce(data := torch.ones(2))
    print("default group", data.tolist(), flush=True)
    dist.destroy_process_group()


@case
def shapes_differ() -> None:
    init(timeout=HOUR)
    report(lambda: dist.all_reduce(torch.ones(3, 4 + RANK)))


@case
def rank_one_is_killed() -> None:
    init(timeout=HOUR)
    dist.all_reduce(torch.ones(2))
    if RANK == 1:
        print("ready", flush=True)
        threading.Event().wait()
    report(lambda: dist.all_reduce(torch.ones(100_000)))


@case
def rank_one_raises() -> None:
    init(timeout=HOUR)
    dist.all_reduce(torch.ones(2))
    if RANK == 1:
        raise SystemError("this rank's own trouble")
    report(lambda: dist.all_reduce(torch.ones(4)))


@case
def rank_one_returns_early() -> None:
    init(timeout=HOUR)
    dist.all_reduce(torch.ones(2))
    if RANK == 1:
        return
    report(lambda: dist.all_reduce(torch.ones(4)))


@case
def rank_one_calls_broadcast() -> None:
    init(timeout=HOUR)
    dist.all_reduce(torch.ones(2))
    if RANK == 1:
        report(lambda: dist.broadcast(torch.ones(4), 0))
    else:
        report(lambda: dist.all_reduce(torch.ones(4)))


@case
def rank_one_is_late() -> None:
    """Gloo's barrier over the store keeps rank 1 away until the others have timed out."""
    init(timeout=timedelta(seconds=2))
    store = dist.distributed_c10d._get_default_store()
    if RANK == 1:
        store.wait([f"gave up {rank}" for rank in range(SIZE) if rank != 1], timedelta(minutes=1))
    else:
        report(lambda: dist.all_reduce(torch.ones(4)))
        store.set(f"gave up {RANK}", "")


@case
def waiting_has_a_timeout() -> None:
    init(timeout=HOUR)
    store = dist.distributed_c10d._get_default_store()
    data = torch.ones(4)
    if RANK == 0:
        work = dist.all_reduce(data, async_op=True)
        report(lambda: work.wait(timedelta(milliseconds=200)))
        store.set("go on", "")
        work.wait()
    else:
        store.wait(["go on"])
        dist.all_reduce(data)
    print(data.tolist(), flush=True)
    dist.destroy_process_group()


@case
def futures_carry_errors() -> None:
    init(timeout=HOUR)
    future = dist.all_reduce(torch.ones(3 + RANK), async_op=True).get_future()
    report(lambda: future.then(lambda f: f.value()).wait())


@case
def exit_with_calls_outstanding() -> None:
    init(timeout=HOUR)
    for _ in range(5):
        dist.all_reduce(torch.ones(50_000), async_op=True)
    print("end", flush=True)


@case
def exit_with_calls_that_cannot_finish() -> None:
    init(timeout=HOUR)
    if RANK == 0:
        dist.all_reduce(torch.ones(50_000), async_op=True)
    print("end", flush=True)


@case
def exit_from_an_exception() -> None:
    init(timeout=HOUR)
    dist.all_reduce(torch.ones(50_000), async_op=True)
    raise SystemError("on every rank")


@case
def exit_while_callbacks_run() -> None:
    init(timeout=HOUR)
    for _ in range(5):
        future = dist.all_reduce(torch.ones(10), async_op=True).get_future()
        future.then(lambda f: (time.sleep(0.2), f.value()))
    print("end", flush=True)


@case
def exit_without_destroying() -> None:
    init(timeout=HOUR)
    dist.all_reduce(torch.ones(10))
    subgroup = dist.new_group(list(range(SIZE)))
    dist.all_reduce(torch.ones(10), group=subgroup)
    print("end", flush=True)


@case
def destroyed_and_made_again() -> None:
    # A store that stays: by the default one, a rank can meet the store of the group before.
    port = int(os.environ["MASTER_PORT"])
    store = dist.TCPStore("127.0.0.1", port, SIZE, is_master=RANK == 0)
    for made in range(3):
        dist.init_process_group(
            "gloo", store=dist.PrefixStore(str(made), store), rank=RANK, world_size=SIZE, timeout=HOUR
        )
        dist.all_reduce(data := torch.ones(10))
        print(session().attached, data[0].item(), flush=True)
        dist.barrier()  # rank 0 takes the store with it
        dist.destroy_process_group()


@case
def destroy_with_calls_outstanding() -> None:
    init(timeout=HOUR)
    data = torch.ones(200_000)
    work = dist.all_reduce(data, async_op=True)
    dist.destroy_process_group()
    work.wait()
    print(data[0].item(), data[-1].item(), flush=True)


@case
def last_reference_goes_in_a_callback() -> None:
    init(timeout=HOUR)
    holder = [dist.new_group(list(range(SIZE)))]
    group = holder[0]
    future = dist.all_reduce(torch.ones(10), group=group, async_op=True).get_future()
    gate = threading.Event()

    def drop(done: torch.futures.Future) -> torch.Tensor:
        gate.wait()
        holder.clear()
        return done.value()[0]

    result = future.then(drop)
    dist.distributed_c10d._world.pg_map.pop(group, None)
    for table in ("pg_names", "pg_group_ranks", "pg_backend_config", "pg_to_tag"):
        getattr(dist.distributed_c10d._world, table).pop(group, None)
    for groups in dist.distributed_c10d._world.tags_to_pg.values():
        if group in groups:
            groups.remove(group)
    torch._C._distributed_c10d._unregister_process_group(group.group_name)
    del group
    gate.set()
    print(result.wait()[0].item(), flush=True)
    dist.destroy_process_group()


@case
def forked_children() -> None:
    init(timeout=HOUR)
    dist.all_reduce(torch.ones(10))
    child = os.fork()
    if child == 0:
        report(lambda: dist.all_reduce(torch.ones(10)))
        sys.exit(3)  # runs the interpreter's exit handlers
    _, status = os.waitpid(child, 0)
    data = torch.ones(10)
    dist.all_reduce(data)
    print("child", os.waitstatus_to_exitcode(status), "sum", data[0].item(), flush=True)
    dist.destroy_process_group()


@case
def aborted_by_the_script() -> None:
    init(timeout=HOUR)
    work = dist.all_reduce(torch.ones(10), async_op=True) if RANK == 0 else None
    if work is not None:
        dist.distributed_c10d._get_default_group().abort()
        report(work.wait)
    else:
        report(lambda: dist.all_reduce(torch.ones(10)) or dist.all_reduce(torch.ones(10)))


@case
def attached() -> None:
    init()
    data = torch.ones(3)
    dist.all_reduce(data)
    print(session().attached, session().reason, data.tolist(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    CASES[sys.argv[1]]()
