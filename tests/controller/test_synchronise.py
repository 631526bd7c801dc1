"""Switches that come, go and come back, on a switch in memory."""

import asyncio

from controller_bench import TOPOLOGY, Bench, options, request
from controller_fakes import FakeSession

from netreduce.controller.jobs.job import JobState
from netreduce.controller.views import orphan_info
from netreduce.p4.wire import SLOT_COUNT, Cause


def test_a_short_break_of_the_connection_harms_no_job(run):
    async def test():
        bench = await Bench.make()
        await bench.admitted()
        before = bench.session.snapshot()
        bench.disconnect()
        bench.session.history.clear()
        await bench.connect(kept=True)
        assert bench.job().state is JobState.ACTIVE
        assert bench.session.snapshot() == before and bench.session.history == []

    run(test())


def test_a_restarted_switch_aborts_its_jobs_and_serves_new_ones(run):
    async def test():
        bench = await Bench.make()
        free = bench.free()
        await bench.admitted()
        bench.disconnect()
        bench.session.restart()
        await bench.connect(kept=False)
        job = bench.job()
        assert job.abort_event.reason == "switch s1 restarted and lost the job's entries"
        assert job.abort_event.rank == -1
        assert bench.session.count("forward") == 10 and bench.session.count("connection") == 0
        assert bench.free() == free
        await bench.admitted(group="next")

    run(test())


def test_a_job_whose_entries_were_tampered_with_is_aborted(run):
    async def test():
        bench = await Bench.make()
        await bench.admitted(group="victim")
        await bench.admitted(group="other")
        bench.disconnect()
        victim = bench.job(1).plan.streams[0]
        del bench.session.present["group", 2 + victim.number]
        await bench.connect(kept=True)
        assert bench.job(1).state is JobState.ABORTED and bench.job(2).state is JobState.ACTIVE
        assert bench.session.count("connection") == 4, "what was left of the victim is gone"

    run(test())


def test_forwarding_follows_the_topology_file(run):
    async def test():
        session = FakeSession()
        await Bench.make(session=session)
        session.history.clear()
        changed = TOPOLOGY.replace("port: 102", "port: 103").replace("port: 101", "port: 104")
        bench = await Bench.make(changed.replace("count: 8", "count: 7"), session=session)
        assert bench.session.flood_ports() == [*range(1, 8), 103, 104]
        assert sorted(session.history) == ["-forward", "~forward", "~forward", "~group"]

    run(test())


def test_a_member_dies_while_the_switch_is_away(run):
    async def test():
        bench = await Bench.make()
        before, free = bench.session.snapshot(), bench.free()
        replies = await bench.admitted()
        bench.disconnect()
        job, member = bench.manager._find(replies[0].member)
        bench.manager.attendance_ended(job, member)
        await bench.settle()
        assert job.state is JobState.ABORTED
        assert bench.session.count("connection") == 4 and bench.free() != free, "still on the switch: kept"
        await bench.connect(kept=True)
        assert bench.session.snapshot() == before and bench.free() == free

    run(test())


def test_the_connection_breaks_while_a_job_is_set_up(run):
    async def test():
        bench = await Bench.make()
        before, free = bench.session.snapshot(), bench.free()

        def break_at_connections(entity):
            if getattr(entity, "table_id", "") == "connection":
                bench.disconnect()
                bench.session.on_insert = lambda entity: None
                raise bench.session.fail("inserting entries", "the connection is down", 14)

        bench.session.on_insert = break_at_connections
        replies = await bench.join(request(0), request(1))
        assert replies[0].reason.startswith("setting up the job failed: switch s1")
        assert bench.session.count("rewrite") == 4, "could not be removed"
        await bench.connect(kept=True)
        assert bench.session.snapshot() == before and bench.free() == free

    run(test())


def test_jobs_do_not_wait_for_ever_for_an_unreachable_switch(run):
    async def test():
        bench = await Bench.make()
        await bench.admitted()
        bench.disconnect()
        bench.clock.advance(29)
        bench.manager.maintain()
        assert bench.job().state is JobState.ACTIVE
        bench.clock.advance(1)
        bench.manager.maintain()
        assert "switch s1 could not be reached for 30 s" in bench.job().abort_event.reason

    run(test())


def test_stopping_leaves_the_data_plane_alone(run):
    async def test():
        bench = await Bench.make()
        replies = await bench.admitted()
        waiting = bench.waiting(bench.manager.join(request(0, group="late")))
        await bench.settle()
        before = bench.session.snapshot()
        await bench.manager.stop()
        assert (await waiting).reason == "the controller is shutting down"
        job, member = bench.manager._find(replies[0].member)
        bench.manager.attendance_ended(job, member)
        await bench.settle()
        assert job.state is JobState.ACTIVE and bench.session.snapshot() == before
        assert not (await bench.manager.join(request(0, group="later"))).admitted

    run(test())


async def restarted_controller(**changes) -> tuple[Bench, Bench]:
    """A controller with a running job, and the one that follows it."""
    old = await Bench.make(TOPOLOGY)
    await old.admitted()
    return old, await Bench.make(TOPOLOGY, options(**changes), session=old.session)


def test_a_new_controller_leaves_running_jobs_alone(run):
    async def test():
        old, new = await restarted_controller()
        assert new.session.count("connection") == 4
        orphans = new.manager.orphanage.of("s1")
        plan = old.job().plan
        assert [(o.number, o.wire_job, o.generation, o.slots) for o in orphans] == [
            (s.number, s.wire_job, plan.generation, s.slots) for s in plan.streams
        ]
        assert new.free() == old.free(), "nobody else gets what they use"
        info = orphan_info("s1", orphans[0])
        assert info.state.startswith("orphaned") and info.world_size == 2

        replies = await new.admitted(group="next")
        ours = new.job().plan
        assert ours.generation > plan.generation
        assert ours.streams[0].number == 3 and ours.streams[0].slots.first == 256
        assert [r.shm_port for r in replies] == [3, 4]
        assert not {s.wire_job for s in ours.streams} & {s.wire_job for s in plan.streams}

    run(test())


def test_orphans_go_when_nobody_uses_them(run):
    async def test():
        _, bench = await restarted_controller()
        bench.session.packets(1, Cause.FIRST, 10)
        bench.session.packets(2, Cause.FIRST, 10)
        await bench.manager.collect_orphans()
        bench.clock.advance(599)
        bench.session.packets(2, Cause.ADDED, 1)
        await bench.manager.collect_orphans()
        bench.clock.advance(1)
        await bench.manager.collect_orphans()
        assert [o.number for o in bench.manager.orphanage.of("s1")] == [2], "stream 2 was used"
        assert bench.session.count("connection") == 2
        assert bench.free()[2] == 6, "stream 2 still uses the ports"
        bench.clock.advance(600)
        await bench.manager.collect_orphans()
        assert bench.session.count("connection") == bench.session.count("rewrite") == 0
        assert bench.free() == (SLOT_COUNT, 255, 8)

    run(test())


def test_orphans_survive_a_break_and_die_with_the_switch(run):
    async def test():
        _, bench = await restarted_controller()
        bench.disconnect()
        await bench.connect(kept=True)
        assert bench.session.count("connection") == 4
        bench.disconnect()
        bench.session.restart()
        await bench.connect(kept=False)
        assert bench.manager.orphanage.of("s1") == [] and bench.free() == (SLOT_COUNT, 255, 8)

    run(test())


def test_incomplete_streams_of_an_earlier_controller_are_removed(run):
    async def test():
        old = await Bench.make()
        await old.admitted()
        del old.session.present["connection", (("job", old.job().plan.streams[0].wire_job), ("rank", 1))]
        new = await Bench.make(session=old.session)
        assert [o.number for o in new.manager.orphanage.of("s1")] == [2]
        assert new.session.count("connection") == new.session.count("rewrite") == 2

    run(test())


def test_contradicting_streams_of_an_earlier_controller_are_removed(run):
    async def test():
        old = await Bench.make()
        await old.admitted(lane_bits=[32])
        other = await Bench.make()
        resources = other.manager.resources["s1"]
        resources.streams.take()
        for _ in range(100):
            resources.wire_jobs.take()
        await other.admitted(lane_bits=[32])  # the same slots under another stream number
        old.session.present.update(other.session.present)
        new = await Bench.make(session=old.session)
        assert [o.number for o in new.manager.orphanage.of("s1")] == [1]
        assert new.session.count("connection") == 2 and ("group", 4) not in new.session.present

    run(test())


def test_admission_waits_for_the_lock(run):
    async def test():
        bench = await Bench.make()
        async with bench.session.lock:
            joins = [bench.waiting(bench.manager.join(request(rank))) for rank in range(2)]
            await bench.settle()
            assert bench.session.count("connection") == 0
            bench.disconnect()
        replies = await asyncio.gather(*joins)
        assert "switch s1 is not ready" in replies[0].reason

    run(test())
