"""A stock controller library (finsy) drives the switch, unmodified."""

import asyncio
import logging
from collections.abc import Coroutine

import finsy as fy
import pytest
from p4rt_client import DEVICE, PROGRAMS, serving

from netreduce.softswitch.shm_client import ShmPort

SOON = 20.0
FRAME = bytes.fromhex("00000000000b" "020000000001" "9999") + b"payload"


@pytest.fixture
def switch():
    with serving() as (core, _, address):
        core.allow_shm_ports(1, 8)
        core.listen(f"@{address}")
        yield address


def options(**more) -> fy.SwitchOptions:
    return fy.SwitchOptions(
        p4info=PROGRAMS / "control_plane.p4info.txtpb",
        p4blob=PROGRAMS / "control_plane.json",
        device_id=DEVICE,
        **more,
    )


def run(main: Coroutine) -> None:
    async def limited() -> None:
        async with asyncio.timeout(2 * SOON):
            await main

    asyncio.run(limited())


def entry(destination: int, port: int) -> fy.P4TableEntry:
    return fy.P4TableEntry(
        "forward",
        match=fy.P4TableMatch(destination=destination),
        action=fy.P4TableAction("to_port", port=port),
    )


async def collect(stream) -> list:
    return [item async for item in stream]


def test_pipeline_tables_counters_and_groups(switch: str) -> None:
    async def main() -> None:
        async with fy.Switch("sw", switch, options()) as sw:
            assert sw.is_primary
            await sw.insert([entry(0xB, 2), entry(0xC, 3)])
            assert {e.match["destination"] for e in await collect(sw.read(fy.P4TableEntry("forward")))} == {
                0xB,
                0xC,
            }
            await sw.modify([entry(0xC, 4)])
            await sw.insert(
                [
                    fy.P4TableEntry(
                        "classify",
                        match=fy.P4TableMatch(selector=1, label="0xf0/&0xff0", port="10...20", small=3),
                        action=fy.P4TableAction("label", value=1, address=2),
                        priority=5,
                    ),
                    fy.P4TableEntry(
                        "route",
                        match=fy.P4TableMatch(address="10.0.0.0/8"),
                        action=fy.P4TableAction("label", value=1, address=2),
                    ),
                ]
            )
            nothing = fy.P4TableEntry("forward", action=fy.P4TableAction("NoAction"), is_default_action=True)
            await sw.modify([nothing])
            await sw.insert([fy.P4MulticastGroupEntry(1, replicas=[2, (3, 7)])])
            (group,) = await collect(sw.read(fy.P4MulticastGroupEntry(1)))
            two, three = group.replicas
            assert (two, three.port, three.instance) == (2, 3, 7)

            with ShmPort(f"@{switch}", 1) as a, ShmPort(f"@{switch}", 2) as b:
                a.send(FRAME)
                assert await asyncio.to_thread(b.receive, SOON) == FRAME
            cells = await collect(sw.read(fy.P4CounterEntry("port_frames")))
            assert [c.data.packet_count for c in cells] == [0, 1, 0, 0, 0, 0, 0, 0]
            (counter,) = await collect(
                sw.read(
                    fy.P4DirectCounterEntry(
                        "forwarded",
                        table_entry=fy.P4TableEntry("forward", match=fy.P4TableMatch(destination=0xB)),
                    )
                )
            )
            assert (counter.data.packet_count, counter.data.byte_count) == (1, len(FRAME))

            await sw.delete_all()  # finsy 0.30 leaves groups alone when a program has constant tables
            await sw.delete([fy.P4MulticastGroupEntry(1)], strict=False)
            assert await collect(sw.read([fy.P4TableEntry("forward"), fy.P4MulticastGroupEntry()])) == []

    run(main())


def test_errors_reach_the_library(switch: str) -> None:
    async def main() -> None:
        async with fy.Switch("sw", switch, options()) as sw:
            await sw.insert([entry(1, 1)])
            with pytest.raises(fy.P4ClientError) as failure:
                await sw.insert([entry(2, 2), entry(1, 1)])
            assert list(failure.value.details) == [1]
            assert failure.value.details[1].canonical_code == fy.GRPCStatusCode.ALREADY_EXISTS
            with pytest.raises(fy.P4ClientError) as failure:
                await sw.delete([entry(9, 1)])
            assert failure.value.is_not_found_only
            await sw.delete([entry(9, 1)], strict=False)

    run(main())


def test_packet_in_and_out(switch: str) -> None:
    async def main() -> None:
        async with fy.Switch("sw", switch, options()) as sw:
            await sw.insert(
                [
                    fy.P4TableEntry(
                        "forward",
                        match=fy.P4TableMatch(destination=0xB),
                        action=fy.P4TableAction("to_cpu"),
                    )
                ]
            )
            with ShmPort(f"@{switch}", 3) as port:
                await sw.write([fy.P4PacketOut(FRAME, egress_port=3, padding=0)])
                assert await asyncio.to_thread(port.receive, SOON) == FRAME
                packets = sw.read_packets()
                waiting = asyncio.ensure_future(anext(packets))
                await asyncio.sleep(0)
                port.send(FRAME)
                packet = await waiting
                assert packet.payload == FRAME
                assert packet["ingress_port"] == 3

    run(main())


def test_known_pipeline_is_not_pushed_again(switch: str) -> None:
    """The library compares cookies; entries of the first session stay."""

    async def main() -> None:
        async with fy.Switch("sw", switch, options()) as sw:
            await sw.insert([entry(1, 1)])
        async with fy.Switch("sw", switch, options()) as sw:
            assert len(await collect(sw.read(fy.P4TableEntry("forward")))) == 1

    run(main())


def test_two_controllers_arbitrate(switch: str, caplog) -> None:
    caplog.set_level(logging.CRITICAL, logger="finsy")

    async def main() -> None:
        became = asyncio.Event()
        async with fy.Switch("two", switch, options(initial_election_id=10)) as two:
            two.ee.add_listener(fy.SwitchEvent.BECOME_PRIMARY, lambda _: became.set())
            async with fy.Switch("one", switch, options(initial_election_id=20)) as one:
                assert one.is_primary
                await one.insert([entry(1, 1)])
                with pytest.raises(fy.P4ClientError) as failure:
                    await two.insert([entry(2, 1)])
                assert failure.value.code == fy.GRPCStatusCode.PERMISSION_DENIED
                assert not two.is_primary
                assert len(await collect(two.read(fy.P4TableEntry("forward")))) == 1
            # The primary has gone; the library bids for its place.
            await asyncio.wait_for(became.wait(), SOON)
            await two.insert([entry(2, 1)])
            assert len(await collect(two.read(fy.P4TableEntry("forward")))) == 2

    run(main())
