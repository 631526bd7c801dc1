"""Traffic that is not aggregated: by MAC address, flooded, or dropped, and never changed."""

import random

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

from netreduce.p4.wire import UDP_PORT_FIRST, Cause
from packets.entries import Discarded, Flooded, Group, Station, UnknownStations
from packets.frames import lanes, mac_text, other_traffic
from packets.jobs import Job
from packets.targets import PORTS
from packets.twin import Twin

A, B, NOBODY = 0x0200_0000_00AA, 0x0200_0000_00BB, 0x0200_0000_00CC
BROADCAST = 0xFFFF_FFFF_FFFF


def test_known_stations_get_their_frames_alone(switch: Twin) -> None:
    switch.write(Station(A, 3), Station(B, 6))
    there, back = other_traffic(A, B), other_traffic(B, A)
    assert switch.send(3, there) == {6: [there]}
    assert switch.send(6, back) == {3: [back]}


@pytest.mark.parametrize("destination", [NOBODY, BROADCAST, 0x0100_5E00_0001])
@pytest.mark.parametrize("port", [1, 5, 8])
def test_others_are_flooded_but_not_back(switch: Twin, port: int, destination: int) -> None:
    frame = other_traffic(A, destination)
    assert switch.send(port, frame) == {to: [frame] for to in PORTS if to != port}


def test_arp_request_is_flooded(switch: Twin) -> None:
    frame = bytes(Ether(src=mac_text(A), dst="ff:ff:ff:ff:ff:ff") / ARP(psrc="10.0.0.1", pdst="10.0.0.2"))
    assert len(switch.send(2, frame)) == len(PORTS) - 1


def test_a_wrong_ipv4_checksum_is_forwarded_as_it_is(switch: Twin) -> None:
    switch.write(Station(B, 6))
    ether = Ether(src=mac_text(A), dst=mac_text(B))
    not_ours = UDP(dport=UDP_PORT_FIRST) / Raw(b"not ours")
    for payload in (TCP() / Raw(b"data"), not_ours, UDP(dport=53) / Raw(b"?")):
        frame = bytes(ether / IP(chksum=0xDEAD) / payload)
        assert switch.send(1, frame) == {6: [frame]}


@pytest.mark.parametrize("length", [14, 15, 60, 64, 333, 1514, 4154])
def test_frames_of_any_length(switch: Twin, length: int) -> None:
    switch.write(Station(B, 6))
    frame = other_traffic(A, B, random.Random(length).randbytes(length - 14))
    assert switch.send(1, frame) == {6: [frame]}


def test_frames_that_end_before_ethernet_does_go_nowhere(switch: Twin) -> None:
    if not switch.target.takes_any_frame:
        pytest.skip("the kernel does not send such frames")
    for length in range(1, 14):
        assert switch.send(1, other_traffic(A, BROADCAST)[:length]) == {}


def test_an_address_may_be_flooded_or_discarded_by_itself(switch: Twin) -> None:
    switch.write(Group(20, ((2, 0), (4, 0), (6, 0))), Flooded(A, 20), Discarded(B))
    frame = other_traffic(NOBODY, A)
    assert switch.send(4, frame) == {2: [frame], 6: [frame]}
    assert switch.send(4, other_traffic(NOBODY, B)) == {}


def test_unknown_stations_can_be_dropped_and_flooded_again(switch: Twin) -> None:
    frame = other_traffic(A, NOBODY)
    switch.write(UnknownStations(0))
    assert switch.send(1, frame) == {}
    switch.write(UnknownStations(1))
    assert len(switch.send(1, frame)) == len(PORTS) - 1


def test_a_station_moves(switch: Twin) -> None:
    frame = other_traffic(A, B)
    switch.write(Station(B, 6))
    assert switch.send(1, frame) == {6: [frame]}
    switch.modify(Station(B, 7))
    assert switch.send(1, frame) == {7: [frame]}
    switch.delete(Station(B, 7))
    assert len(switch.send(1, frame)) == len(PORTS) - 1


def test_a_contribution_to_no_job_and_no_station_is_flooded(switch: Twin) -> None:
    job = Job(ranks=2)
    frame = job.packet(0, 0, lanes([1], 32, 16))
    assert len(switch.send(1, frame)) == len(PORTS) - 1
    assert switch.model.packets == {(0, Cause.UNKNOWN): 1}
