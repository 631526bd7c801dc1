"""Admission, departure and their entries, on a switch in memory."""

import asyncio

import pytest
from controller_bench import TOPOLOGY, Bench, options, request, udp_request
from finsy.grpcutil import GRPCStatusCode

from netreduce.controller.api import job_service_pb2 as pb
from netreduce.controller.errors import Refusal, UnknownMember
from netreduce.controller.jobs.job import JobState, MemberState
from netreduce.controller.jobs.manager import INTERNAL_REASON
from netreduce.controller.tables.connection import lane_mask
from netreduce.controller.views import job_info
from netreduce.p4.wire import SLOT_COUNT, UDP_PORT_FIRST, Cause


def test_forwarding_is_installed_for_every_port(run):
    async def test():
        bench = await Bench.make()
        assert bench.session.count("forward") == 10
        assert bench.session.flood_ports() == [*range(1, 9), 101, 102]
        assert bench.session.default.action.name == "flood"
        assert bench.session.default.action.args == {"group": 1}

    run(test())


def test_admission_over_shm(run):
    async def test():
        bench = await Bench.make()
        replies = await bench.admitted(3)
        assert [r.shm_port for r in replies] == [1, 2, 3]
        assert {r.shm_socket for r in replies} == {"@s1"}
        assert {(r.window, r.max_blocks, r.lease_ms, r.switch) for r in replies} == {(64, 16, 60_000, "s1")}
        assert [s.lane_bits for s in replies[0].streams] == [32, 64]
        assert len({(r.job_id, r.generation, tuple(s.wire_job for s in r.streams)) for r in replies}) == 1
        assert len({r.member for r in replies}) == 3
        for rank, reply in enumerate(replies):
            assert reply.successor == replies[(rank + 1) % 3].self
            assert reply.predecessor == replies[(rank - 1) % 3].self
        assert bench.session.count("connection") == bench.session.count("rewrite") == 6

    run(test())


def test_entries_say_what_the_members_were_told(run):
    async def test():
        bench = await Bench.make()
        replies = await bench.admitted(2)
        by_key = {
            (e["job"], e["rank"]): e.action.args
            for e in bench.session.present.values()
            if getattr(e, "table_id", "") == "connection"
        }
        wire, stream = replies[1].streams[1].wire_job, 2
        args = by_key[wire, 1]
        assert args == {
            "port": 2, "source": 0x0A010103, "stream": stream, "generation": replies[0].generation,
            "slot_base": 128, "slot_mask": 127, "rank_bit": 2, "full": 3, "ranks": 2,
            "lane_mask": lane_mask(64), "group": 2 + stream,
        }  # fmt: skip
        rewrite = bench.session.present["rewrite", (("rank", 1), ("stream", stream))].action.args
        assert rewrite == {
            "source_mac": 0x024E52010001, "destination_mac": 0x024E52010002, "source_ip": 0x0A010102,
            "destination_ip": 0x0A010103, "source_port": UDP_PORT_FIRST, "destination_port": UDP_PORT_FIRST,
            "predecessor": 0,
        }  # fmt: skip
        group = bench.session.snapshot()["group", 2 + stream]
        assert group == ((1, 0), (2, 1))

    run(test())


def test_a_failure_of_our_own_is_no_reason_to_wait(run, monkeypatch):
    async def test():
        bench = await Bench.make()

        def plan(job):
            raise LookupError("a defect")

        monkeypatch.setattr(bench.manager._admission, "plan", plan)
        replies = await bench.join(request(0), request(1))
        assert {reply.admitted for reply in replies} == {False}
        assert {reply.reason for reply in replies} == {INTERNAL_REASON}

    run(test())


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_lane_mask_has_the_top_bit_of_every_lane(bits):
    lane = 1 << (bits - 1)
    lanes = [(lane_mask(bits) >> offset) & ((1 << bits) - 1) for offset in range(0, 2048, bits)]
    assert lanes == [lane] * (2048 // bits)
    assert lane_mask(bits) < 1 << 2048


def test_ranks_of_one_host_share_its_port(run):
    async def test():
        bench = await Bench.make()
        replies = await bench.join(*(udp_request(rank, 4) for rank in range(4)))
        assert all(reply.admitted for reply in replies), replies[0].reason
        assert [(r.self.ip, r.self.udp_port) for r in replies] == [
            ("192.168.0.1", UDP_PORT_FIRST), ("192.168.0.2", UDP_PORT_FIRST),
            ("192.168.0.1", UDP_PORT_FIRST + 1), ("192.168.0.2", UDP_PORT_FIRST + 1),
        ]  # fmt: skip
        assert replies[0].self.mac == "02:00:00:00:00:01"
        assert replies[0].shm_socket == "" and replies[0].max_blocks == 4
        assert bench.session.snapshot()["group", 3] == ((101, 0), (101, 2), (102, 1), (102, 3))
        assert bench.free()[2] == 8, "no shm port is taken"

    run(test())


@pytest.mark.parametrize(
    ("mtus", "blocks"),
    [((300, 9000), 1), ((555, 600), 1), ((556, 600), 2), ((9000, 9000), 16), ((0, 9000), 4)],
)
def test_packets_fit_the_smallest_mtu(run, mtus, blocks):
    async def test():
        bench = await Bench.make()
        replies = await bench.join(*(udp_request(rank, mtu=mtu) for rank, mtu in enumerate(mtus)))
        assert [reply.max_blocks for reply in replies] == [blocks] * 2

    run(test())


def test_streams_make_before_use_and_break_in_reverse(run):
    async def test():
        bench = await Bench.make()
        bench.session.history.clear()
        replies = await bench.admitted(lane_bits=[32])
        await bench.leave(*replies)
        order = ["+group", "+rewrite", "+rewrite", "+connection", "+connection"]
        assert bench.session.history == [*order, *(step.replace("+", "-") for step in reversed(order))]

    run(test())


def test_finished_job_is_recorded_and_everything_is_given_back(run):
    async def test():
        bench = await Bench.make()
        before, free = bench.session.snapshot(), bench.free()
        replies = await bench.admitted()
        bench.session.packets(1, Cause.FIRST, 5, 500)
        bench.session.packets(2, Cause.FIRST, 1, 100)
        bench.session.packets(1, Cause.DUPLICATE_ANSWERED, 2, 200)
        bench.session.delivered = {(1, 0): 6, (1, 1): 5, (2, 1): 1}
        statistics = pb.HostStatistics(calls=7, fallbacks=[pb.Fallback(collective="broadcast", calls=1)])
        await bench.leave(replies[0], statistics=statistics)
        assert bench.job().state is JobState.ACTIVE, "a rank that left early is no problem"
        assert bench.session.count("connection") == 4
        await bench.leave(replies[1], statistics=pb.HostStatistics(calls=8))

        assert bench.session.snapshot() == before and bench.free() == free
        info = job_info(bench.job())
        assert info.state == "finished" and info.ended_at > 0
        assert (info.first_slot, info.slot_count) == (0, 256)
        assert (info.switch_counters.first, info.switch_counters.duplicate_answered) == (6, 2)
        assert info.switch_counters.bytes == 800
        assert [m.results_delivered for m in info.members] == [6, 6]
        assert [m.statistics.calls for m in info.members] == [7, 8]
        assert [m.state for m in info.members] == ["left", "left"]
        assert bench.manager.jobs(False) == []

    run(test())


def test_packets_that_are_still_in_the_switch_are_counted(run):
    async def test():
        bench = await Bench.make()
        replies = await bench.admitted()
        await bench.leave(replies[0])
        arriving, read_one = [4, 3], bench.session._read_one

        def read_while_packets_arrive(query):
            found = read_one(query)
            if getattr(query, "index", None) == 16 + Cause.DUPLICATE_ABSORBED and arriving:
                bench.session.packets(1, Cause.DUPLICATE_ABSORBED, arriving.pop())
            return found

        bench.session._read_one = read_while_packets_arrive
        await bench.leave(replies[1])
        assert job_info(bench.job()).switch_counters.duplicate_absorbed == 7

    run(test())


def test_a_late_report_does_not_replace_final_statistics(run):
    async def test():
        bench = await Bench.make()
        replies = await bench.admitted()
        await bench.leave(replies[0], statistics=pb.HostStatistics(calls=9))
        member = bench.job().members[0]
        bench.manager.report(member, pb.MemberReport(statistics=pb.HostStatistics(calls=8)))
        assert member.statistics.calls == 9

    run(test())


def test_counters_of_earlier_jobs_are_not_counted_again(run):
    async def test():
        bench = await Bench.make()
        bench.session.packets(1, Cause.FIRST, 1000)
        replies = await bench.admitted()
        bench.session.packets(1, Cause.FIRST, 3)
        await bench.leave(*replies)
        assert job_info(bench.job()).switch_counters.first == 3

    run(test())


def test_jobs_share_the_switch_and_reuse_what_is_free(run):
    async def test():
        bench = await Bench.make()
        one = await bench.admitted(group="a")
        two = await bench.admitted(group="b")
        assert one[0].generation < two[0].generation
        assert not {s.wire_job for s in one[0].streams} & {s.wire_job for s in two[0].streams}
        await bench.leave(*one)
        three = await bench.admitted(group="c")
        assert bench.job(3).plan.streams[0].slots.first == 0
        assert two[0].generation < three[0].generation
        assert {r.shm_port for r in three} == {5, 6}, "ports used longest ago come first"

    run(test())


UDP = udp_request
REFUSED = {
    "no group": ([request(0, group="")], "names no group"),
    "world of one": ([request(0, 1)], "a world size of 1 leaves nothing to aggregate"),
    "too many ranks": ([request(0, 65)], "world size 65 is more than the 64 ranks"),
    "no such rank": ([request(2, 2)], "rank 2 does not exist in a world of 2"),
    "no transport": ([request(0, transport=0)], "the transport must be shm or udp"),
    "no lanes": ([request(0, lane_bits=[])], "lane widths must be different ones of 16, 32 and 64 bits"),
    "lanes twice": ([request(0, lane_bits=[32, 32])], "found [32, 32]"),
    "odd lanes": ([request(0, lane_bits=[24])], "found [24]"),
    "world sizes differ": (
        [request(0), request(1, 3)],
        "the ranks disagree on the world size: rank 0 (pid 100 on node) says 2, rank 1 (pid 101 on node)",
    ),
    "lanes differ": ([request(0), request(1, lane_bits=[32])], "disagree on the lane widths"),
    "transports differ": ([request(0), UDP(1)], "disagree on the transport: rank 0 (pid 100 on node) says"),
    "same rank twice": (
        [request(0), request(0, pid=999)],
        "two processes joined group 'g1' as rank 0: rank 0 (pid 100 on node) and rank 0 (pid 999 on node)",
    ),
    "shm over two machines": (
        [request(0), request(1, hostname="other")],
        "transport shm joins processes of one machine, but rank 0 (pid 100 on node) and rank 1"
        " (pid 101 on other) run on two; use transport udp",
    ),
    "no shm ports left": ([request(r, 9) for r in range(9)], "has 8 of 8 shm ports free and 9 are needed"),
    "unknown address": (
        [UDP(0), UDP(1, ip="192.168.0.9")],
        "the address 192.168.0.9 of rank 1 (pid 101 on h2) is not in the topology file net.yaml; add under"
        " hosts: {name: h2, mac: <its MAC address>, ip: 192.168.0.9, switch: s1, port: <the"
        " switch port it is on>}",
    ),
    "no address": ([UDP(0, ip="")], "rank 0 must say where it receives"),
    "port the switch ignores": ([UDP(0, udp_port=4000)], "the switch looks at ports 20050 to 20113"),
    "one port for two": (
        [UDP(0), UDP(1, ip="192.168.0.1", udp_port=UDP_PORT_FIRST)],
        "both receive on 192.168.0.1, UDP port 20050; each rank needs a port of its own",
    ),
    "small MTU": (
        [UDP(0), UDP(1, mtu=299)],
        "the path of rank 1 (pid 101 on h2) carries IP packets of 299 bytes; at least 300 are needed",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("requests", "reason"), REFUSED.values(), ids=REFUSED)
def test_refused(run, requests, reason):
    async def test():
        bench = await Bench.make()
        before, free = bench.session.snapshot(), bench.free()
        for reply in await bench.join(*requests):
            assert not reply.admitted and reason in reply.reason
        assert bench.session.snapshot() == before and bench.free() == free
        assert bench.manager.jobs(False) == []

    run(test())


def test_late_ranks_of_a_refused_group_hear_the_reason_at_once(run):
    async def test():
        bench = await Bench.make()
        await bench.join(request(0, 4, lane_bits=[32]), request(1, 4))
        (late,) = await bench.join(request(2, 4))
        assert "disagree on the lane widths" in late.reason
        assert len(bench.manager.jobs(True)) == 1, "one group, one record"
        assert bench.job().state_text().startswith("refused: the ranks disagree")

    run(test())


def test_a_group_is_used_once(run):
    async def test():
        bench = await Bench.make()
        await bench.admitted()
        (reply,) = await bench.join(request(0))
        assert "group 'g1' was used by job 1 (train) already" in reply.reason

    run(test())


def test_no_shm_pool(run):
    async def test():
        bench = await Bench.make(TOPOLOGY.split("shm_pools")[0])
        replies = await bench.join(request(0), request(1))
        assert "add shm_pools to the topology file net.yaml" in replies[0].reason

    run(test())


def test_no_slots_left(run):
    async def test():
        topology = TOPOLOGY.replace("count: 8", "count: 90")
        bench = await Bench.make(topology)
        for n in range(16):
            await bench.admitted(group=f"g{n}")
        replies = await bench.join(request(0, group="last"), request(1, group="last"))
        assert f"256 slots are needed in one piece; of {SLOT_COUNT} slots 0 are free" in replies[0].reason

    run(test())


def test_no_stream_numbers_left(run):
    async def test():
        bench = await Bench.make(options=options(window=1))
        for n in range(255):
            replies = await bench.join(*(udp_request(r, group=f"g{n}", lane_bits=[32]) for r in range(2)))
            assert replies[0].admitted
        assert bench.job(255).plan.streams[0].number == 255
        replies = await bench.join(*(udp_request(rank, group="last") for rank in range(2)))
        assert replies[0].reason == "switch s1 has no stream number left; wait for another job to end"

    run(test())


def test_ranks_on_two_switches(run):
    async def test():
        topology = TOPOLOGY.replace("device_id: 1}", "device_id: 1}, {name: s2, address: 'h:1'}")
        bench = await Bench.make(topology.replace("switch: s1, port: 102", "switch: s2, port: 102"))
        replies = await bench.join(udp_request(0), udp_request(1))
        expected = "rank 0 (pid 100 on h1) is on switch s1 and rank 1 (pid 101 on h2) on switch s2"
        assert expected in replies[0].reason

    run(test())


@pytest.mark.parametrize("make", [request, udp_request])
def test_switch_down(run, make):
    async def test():
        bench = await Bench.make()
        bench.disconnect()
        replies = await bench.join(make(0), make(1))
        assert replies[1].reason == "switch s1 is not ready (down: the connection was lost)"

    run(test())


def test_missing_ranks_are_named(run):
    async def test():
        bench = await Bench.make()
        waiting = [bench.waiting(bench.manager.join(request(r, 4))) for r in (0, 2)]
        gone = bench.waiting(bench.manager.join(request(3, 4)))
        await bench.settle()
        assert bench.job().state_text() == "joining" and bench.job().missing() == [1]
        gone.cancel()
        await bench.settle()
        bench.clock.advance(9.9)
        bench.manager.maintain()
        await bench.settle()
        assert not waiting[0].done()
        bench.clock.advance(0.1)
        bench.manager.maintain()
        replies = await asyncio.gather(*waiting)
        assert replies[0] == replies[1]
        assert replies[0].reason.startswith("ranks 1, 3 of 4 did not join in time")
        assert "(rank 3 (pid 103 on node) joined and went away)" in replies[0].reason

    run(test())


def test_default_join_timeout(run):
    async def test():
        bench = await Bench.make()
        waiting = bench.waiting(bench.manager.join(request(0, timeout_ms=0)))
        await bench.settle()
        bench.clock.advance(59)
        bench.manager.maintain()
        assert bench.job().state is JobState.JOINING
        bench.clock.advance(1)
        bench.manager.maintain()
        assert "rank 1 of 2 did not join" in (await waiting).reason

    run(test())


def test_a_group_that_nobody_waits_in_does_not_stay(run):
    async def test():
        bench = await Bench.make()
        gone = bench.waiting(bench.manager.join(request(0, timeout_ms=2**32 - 1)))
        await bench.settle()
        bench.clock.advance(100)
        bench.manager.maintain()
        assert bench.job().state is JobState.JOINING, "it may wait for as long as it likes"
        gone.cancel()
        await bench.settle()
        bench.clock.advance(60)
        bench.manager.maintain()
        assert bench.job().state is JobState.REFUSED

    run(test())


@pytest.mark.parametrize("field", ["group", "name", "hostname"])
def test_long_names_are_refused(run, field):
    async def test():
        bench = await Bench.make()
        (reply,) = await bench.join(request(0, **{field: "x" * 256}))
        assert reply.reason == f"the {field} has 256 characters; at most 255 are allowed"
        assert bench.manager.jobs(include_ended=True) == []

    run(test())


def test_a_rank_may_ask_again(run):
    async def test():
        bench = await Bench.make()
        cut_off = bench.waiting(bench.manager.join(request(0)))
        await bench.settle()
        again = bench.waiting(bench.manager.join(request(0)))
        await bench.settle()
        (other,) = await bench.join(request(1))
        assert other.admitted and (await again).admitted
        cut_off.cancel()
        await bench.settle()
        assert bench.job().state is JobState.ACTIVE, "the old call's end is not the rank's"
        bench.manager.attend((await again).member)

    run(test())


@pytest.mark.parametrize("table", ["group", "rewrite", "connection"])
def test_partial_failure_is_rolled_back(run, table):
    async def test():
        bench = await Bench.make()
        before, free = bench.session.snapshot(), bench.free()
        seen = 0

        def reject_the_second(entity):
            nonlocal seen
            seen += (getattr(entity, "table_id", "") or "group") == table
            if seen == 2:
                raise bench.session.fail("inserting entries", "table full", GRPCStatusCode.RESOURCE_EXHAUSTED)

        bench.session.on_insert = reject_the_second
        replies = await bench.join(request(0), request(1))
        assert replies[0].reason == (
            "setting up the job failed: switch s1: inserting entries failed: table full"
        )
        assert bench.session.snapshot() == before and bench.free() == free
        bench.session.on_insert = lambda entity: None
        await bench.admitted(group="next")

    run(test())


def test_member_death_is_told_to_the_others(run):
    async def test():
        bench = await Bench.make()
        before, free = bench.session.snapshot(), bench.free()
        replies = await bench.admitted(3)
        job, member = bench.manager._find(replies[2].member)
        bench.manager.attendance_ended(job, member)
        assert job.aborted.is_set() and job.abort_event.rank == 2
        assert job.abort_event.reason == "rank 2 (pid 102 on node) died: its connection ended without leaving"
        await bench.settle()
        assert bench.session.snapshot() == before and bench.free() == free
        assert [m.state for m in job_info(job).members] == ["attending", "attending", "lost"]
        await bench.leave(replies[0], statistics=pb.HostStatistics(calls=3))
        assert job.members[0].statistics.calls == 3, "the survivors' statistics are kept"
        assert job.state_text().startswith("aborted: rank 2")
        bench.manager.attendance_ended(job, job.members[1])
        assert job.members[1].state is MemberState.ATTENDING, "ended because of the abort"

    run(test())


def test_leaving_with_an_error_aborts_the_job(run):
    async def test():
        bench = await Bench.make()
        replies = await bench.admitted()
        await bench.leave(replies[1], error="the shapes differ")
        assert bench.job().abort_event.reason == "rank 1 (pid 101 on node) gave up: the shapes differ"

    run(test())


def test_end_of_the_stream_after_leave_is_no_death(run):
    async def test():
        bench = await Bench.make()
        replies = await bench.admitted()
        await bench.leave(replies[0])
        job, member = bench.manager._find(replies[0].member)
        bench.manager.attendance_ended(job, member)
        assert job.state is JobState.ACTIVE and member.state is MemberState.LEFT

    run(test())


def test_a_member_that_attends_without_reports_is_alive(run):
    """Its script may hold the interpreter's lock for longer than the lease, and then nothing can report."""

    async def test():
        bench = await Bench.make()
        await bench.admitted()
        bench.clock.advance(1000)
        bench.manager.maintain()
        assert bench.job().state is JobState.ACTIVE

    run(test())


def test_a_member_that_never_attends_loses_its_lease(run):
    async def test():
        bench = await Bench.make()
        replies = await bench.join(request(0), request(1))
        bench.manager.attend(replies[0].member)
        bench.clock.advance(59)
        bench.manager.maintain()
        assert bench.job().state is JobState.ACTIVE
        bench.clock.advance(1)
        bench.manager.maintain()
        job = bench.job()
        assert job.abort_event.rank == 1
        assert "rank 1 (pid 101 on node) is taken for dead: it did not attend within 60 s" in job.reason

    run(test())


def test_a_member_that_left_needs_no_lease(run):
    async def test():
        bench = await Bench.make()
        replies = await bench.join(request(0), request(1))
        bench.manager.attend(replies[1].member)
        await bench.leave(replies[0])
        bench.clock.advance(60)
        bench.manager.maintain()
        assert bench.job().state is JobState.ACTIVE

    run(test())


def test_a_rank_that_goes_away_while_the_job_is_set_up(run):
    async def test():
        bench = await Bench.make()
        await bench.session.lock.acquire()
        joins = [bench.waiting(bench.manager.join(request(rank))) for rank in range(2)]
        await bench.settle()
        joins[0].cancel()
        await bench.settle()
        bench.session.lock.release()
        assert (await joins[1]).admitted
        await bench.settle()
        assert bench.job().state_text() == (
            "aborted: rank 0 (pid 100 on node) went away while the job was set up"
        )

    run(test())


def test_tickets(run):
    async def test():
        bench = await Bench.make(options=options(finished_jobs=1))
        with pytest.raises(UnknownMember, match="belongs to no job"):
            bench.manager.attend("made up")
        first = await bench.admitted(group="a")
        with pytest.raises(Refusal, match=r"rank 0 .* attends job 1 \(train\) already"):
            bench.manager.attend(first[0].member)
        await bench.leave(*first)
        await bench.leave(*await bench.admitted(group="b"))
        assert [job.job_id for job in bench.manager.jobs(True)] == [2], "only the last one is remembered"
        with pytest.raises(UnknownMember):
            await bench.leave(first[0])

    run(test())


def test_windows():
    for window in (0, 3, 128, -4):
        with pytest.raises(ValueError, match=f"window {window} is not a power of two between 1 and 64"):
            options(window=window)


def test_a_small_window_needs_few_slots(run):
    async def test():
        bench = await Bench.make(options=options(window=4))
        replies = await bench.admitted(lane_bits=[16, 32, 64])
        assert replies[0].window == 4
        assert [s.slots.count for s in bench.job().plan.streams] == [8, 8, 8]
        assert bench.free()[0] == SLOT_COUNT - 24

    run(test())
