"""The P4Runtime session: programs, reconnection, standby, and what failed requests tell."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta

import finsy as fy
import grpc
import pytest
from controller_bench import until
from p4runtime_server import P4RuntimeServer

from netreduce.controller import p4runtime_session
from netreduce.controller.clock import SystemClock
from netreduce.controller.errors import SwitchError
from netreduce.controller.p4runtime_session import P4RuntimeSession
from netreduce.controller.pipeline import ProgramError, load_program
from netreduce.controller.tables import groups
from netreduce.controller.topology.schema import SwitchSpec

PROGRAM = load_program()
FORWARD = PROGRAM.schema.tables["forward"].id
PATIENCE = 30


def forward(destination: int, port: int = 1) -> fy.P4TableEntry:
    """An entry to write."""
    match = fy.P4TableMatch(destination=destination)
    return fy.P4TableEntry("forward", match=match, action=fy.P4TableAction("to_port", port=port))


class Recorder:
    """A synchroniser that notes its calls, and raises what it is told to."""

    def __init__(self) -> None:
        self.calls: list[bool] = []
        self.error: SwitchError | None = None

    async def __call__(self, session: P4RuntimeSession, kept: bool) -> None:
        assert session.lock.locked()
        self.calls.append(kept)
        if self.error is not None:
            raise self.error


@contextlib.asynccontextmanager
async def running(server: P4RuntimeServer) -> AsyncIterator[tuple[P4RuntimeSession, Recorder]]:
    """A session with the server."""
    recorder = Recorder()
    session = P4RuntimeSession(
        SwitchSpec(name="s1", address=server.address),
        PROGRAM,
        recorder,
        clock=SystemClock(),
        pipeline_timeout=timedelta(seconds=PATIENCE),
    )
    task = asyncio.create_task(session.run())
    try:
        yield session, recorder
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch):
    """Waits that are for a real network's sake."""
    monkeypatch.setattr(p4runtime_session, "RETRY_DELAY", timedelta(milliseconds=20))
    monkeypatch.setattr("finsy.switch._FAIL_THROTTLE_SECS", 0.02)


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[P4RuntimeServer]:
    """A server."""
    server = P4RuntimeServer()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def test_an_empty_switch_gets_the_program(run):
    async def test():
        async with serving() as server, running(server) as (session, recorder):
            await until(lambda: session.ready)
            assert recorder.calls == [False] and server.calls == ["push"]
            assert server.config == PROGRAM.schema.get_pipeline_config()
            assert session.program == "netreduce 0.1.0" and session.down_since is None

    run(test())


def test_a_switch_that_runs_the_program_is_left_alone(run):
    async def test():
        async with serving() as server:
            server.config = PROGRAM.schema.get_pipeline_config()
            async with running(server) as (session, recorder):
                await until(lambda: session.ready)
                assert recorder.calls == [True] and server.calls == []

    run(test())


def test_groups_of_another_program_are_deleted_before_it_is_replaced(run):
    async def test():
        async with serving() as server:
            server.config = PROGRAM.schema.get_pipeline_config()
            async with running(server) as (session, _):
                await until(lambda: session.ready)
                await session.insert([groups.flood([1, 2]), forward(1)])
            server.config.cookie.cookie ^= 1
            server.calls.clear()
            async with running(server) as (session, recorder):
                await until(lambda: session.ready)
                assert recorder.calls == [False] and server.groups() == set()
                assert server.calls == ["DELETE packet_replication_engine_entry", "push"]

    run(test())


def test_a_slow_compiler_is_waited_for(run):
    async def test():
        async with serving() as server:
            server.push_gate = asyncio.Event()
            async with running(server) as (session, _):
                await until(lambda: server.calls == ["push"])
                assert session.loading and session.lock.locked()
                server.push_gate.set()
                await until(lambda: session.ready)

    run(test())


def test_a_rejected_program_is_reported_and_tried_again(run):
    async def test():
        async with serving() as server:
            server.push_error = (grpc.StatusCode.INVALID_ARGUMENT, "construct 'meter' is not implemented")
            async with running(server) as (session, _):
                await until(lambda: session.state == "down: construct 'meter' is not implemented")
                await session.wait_settled()
                assert session.down_since is not None
                server.push_error = None
                await until(lambda: session.ready)

    run(test())


def test_a_failed_synchronisation_is_tried_again(run):
    async def test():
        async with serving() as server, running(server) as (session, recorder):
            recorder.error = SwitchError("s1", "inserting entries", "full", code=8, update="table_entry")
            await until(lambda: session.state.startswith("down: switch s1: inserting entries failed: full"))
            recorder.error = None
            await until(lambda: session.ready)
            assert recorder.calls[0] is False and recorder.calls[-1] is True

    run(test())


@pytest.mark.parametrize("wiped", [False, True])
def test_reconnects_after_the_switch_was_away(run, wiped):
    async def test():
        async with serving() as server, running(server) as (session, recorder):
            await until(lambda: session.ready)
            await server.stop()
            await until(lambda: not session.ready)
            assert session.state == "down: the connection was lost; reconnecting"
            assert session.down_since is not None
            with pytest.raises(SwitchError) as caught:
                await session.insert([forward(1)])
            assert caught.value.is_disconnected
            if wiped:
                server.wipe()
            await server.start()
            await until(lambda: session.ready)
            assert recorder.calls == [False, not wiped]
            await session.insert([forward(1)])

    run(test())


def test_a_second_controller_stands_by_and_takes_over(run):
    async def test():
        stacks = contextlib.AsyncExitStack(), contextlib.AsyncExitStack()
        async with serving() as server, stacks[0] as first_stack, stacks[1] as stack:
            first, _ = await first_stack.enter_async_context(running(server))
            await until(lambda: first.ready)
            second, recorder = await stack.enter_async_context(running(server))
            await until(lambda: second.state.startswith("standby: another controller is primary"))
            await second.wait_settled()
            assert first.ready and recorder.calls == []
            await first_stack.aclose()
            await until(lambda: second.ready)
            assert recorder.calls == [True]
            await second.insert([forward(1)])

    run(test())


def test_an_unexpected_end_of_the_connection_is_survived(run, caplog):
    async def test():
        async with serving() as server, running(server) as (session, _):
            real_run = session._switch.run

            async def fail_once():
                session._switch.run = real_run
                raise RuntimeError("unforeseen")

            session._switch.run = fail_once
            await until(lambda: session.ready)
            assert "the connection ended unexpectedly; starting again" in caplog.text

    run(test())


def test_failed_updates_are_named(run):
    async def test():
        async with serving() as server, running(server) as (session, _):
            await until(lambda: session.ready)
            await session.insert([forward(1)])
            with pytest.raises(SwitchError) as caught:
                await session.insert([forward(2), forward(1, port=7)])
            error = caught.value
            assert error.is_already_there and not error.is_full and not error.is_disconnected
            assert str(error).startswith("switch s1: inserting entries failed: exists (update: type: INSERT")
            assert f"table_id: {FORWARD}" in error.update
            with pytest.raises(SwitchError) as caught:
                await session.modify([forward(9)])
            assert caught.value.is_not_found
            server.rejected_table = FORWARD
            with pytest.raises(SwitchError) as caught:
                await session.insert([forward(3)])
            assert caught.value.is_full

    run(test())


def test_deleting_what_is_not_there_is_no_error(run):
    async def test():
        async with serving() as server, running(server) as (session, _):
            await until(lambda: session.ready)
            await session.insert([forward(1), forward(2), groups.flood([1])])
            await session.delete([forward(3), forward(1), groups.flood([1])])
            assert server.count(FORWARD) == 1 and server.groups() == set()
            assert [e["destination"] for e in await session.read([fy.P4TableEntry("forward")])] == [2]

    run(test())


def test_a_request_in_flight_when_the_connection_breaks(run):
    async def test():
        async with serving() as server, running(server) as (session, _):
            await until(lambda: session.ready)
            entered, release = asyncio.Event(), asyncio.Event()

            async def hang(*_):
                entered.set()
                await release.wait()

            server._check_primary = hang
            write = asyncio.create_task(session.insert([forward(1)]))
            await asyncio.wait_for(entered.wait(), PATIENCE)
            await server.stop()
            release.set()
            with pytest.raises(SwitchError) as caught:
                await asyncio.wait_for(write, PATIENCE)
            assert caught.value.is_disconnected

    run(test())


def test_cancelling_a_request_is_not_a_switch_error(run):
    async def test():
        async with serving() as server, running(server) as (session, _):
            await until(lambda: session.ready)
            entered, release = asyncio.Event(), asyncio.Event()

            async def hang(*_):
                entered.set()
                await release.wait()

            server._check_primary = hang
            write = asyncio.create_task(session.insert([forward(1)]))
            await asyncio.wait_for(entered.wait(), PATIENCE)
            write.cancel()
            with pytest.raises(asyncio.CancelledError):
                await write
            release.set()

    run(test())


def test_programs_that_are_not_there_or_not_ours(tmp_path):
    with pytest.raises(ProgramError, match=r"absent cannot be read: No such file"):
        load_program(tmp_path / "absent", tmp_path / "absent")
    other = tmp_path / "other.p4info.txtpb"
    other.write_text('pkg_info { name: "router" }')
    with pytest.raises(ProgramError, match="is not the P4Info of the NetReduce program"):
        load_program(other, None)
