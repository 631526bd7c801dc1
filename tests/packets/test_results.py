"""What a result looks like: the packet that the receiver's ring predecessor would have sent."""

from dataclasses import replace

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from netreduce.p4 import wire
from netreduce.p4.wire import Kind
from packets.entries import Group
from packets.frames import NR, dissect, has_right_lengths_and_checksum, ip_text, lanes, mac_text
from packets.jobs import Job
from packets.twin import Twin


@pytest.mark.parametrize("blocks", wire.BLOCK_COUNTS)
def test_every_replica_bears_its_receivers_predecessor(switch: Twin, blocks: int) -> None:
    job = Job(ranks=4)
    switch.write(*job.entries())
    for rank in range(4):
        outputs = switch.send(job.port(rank), job.packet(rank, 17, lanes([1], 32, blocks), ttl=9, tos=0xB8))
    for rank in range(4):
        (frame,) = outputs[job.port(rank)]
        before = job.predecessor(rank)
        packet = dissect(frame)
        assert has_right_lengths_and_checksum(frame)
        assert (packet[Ether].src, packet[Ether].dst) == (mac_text(job.mac(before)), mac_text(job.mac(rank)))
        assert (packet[IP].src, packet[IP].dst) == (ip_text(job.ip(before)), ip_text(job.ip(rank)))
        assert (packet[UDP].sport, packet[UDP].dport) == (job.udp_port(before), job.udp_port(rank))
        assert packet[UDP].chksum == 0
        assert (packet[IP].ttl, packet[IP].tos) == (9, 0xB8)
        assert (packet[NR].kind, packet[NR].rank, packet[NR].contributors) == (Kind.RESULT, before, 4)
        assert (packet[NR].job, packet[NR].k) == (job.number, 17)
        assert bytes(packet[NR].payload) == lanes([4], 32, blocks)


def test_an_answer_to_one_rank_is_rewritten_like_its_replica(switch: Twin) -> None:
    job = Job(ranks=3)
    switch.write(*job.entries())
    for rank in range(3):
        replicas = switch.send(job.port(rank), job.packet(rank, 0, lanes([1], 32, 1)))
    for rank in range(3):
        assert switch.send(job.port(rank), job.packet(rank, 0, lanes([1], 32, 1))) == {
            job.port(rank): replicas[job.port(rank)]
        }


@pytest.mark.parametrize("ttl", [1, 64, 255])
@pytest.mark.parametrize("ip_id", [0, 0x1234, 0xFFFF])
def test_the_ipv4_checksum_is_right_for_any_header(switch: Twin, ttl: int, ip_id: int) -> None:
    job = Job(ranks=2)
    switch.write(*job.entries())
    for rank in range(2):
        outputs = switch.send(
            job.port(rank), job.packet(rank, 0, lanes([1], 32, 1), ttl=ttl, tos=ttl, ip_id=ip_id)
        )
    assert all(has_right_lengths_and_checksum(frame) for frames in outputs.values() for frame in frames)


def test_a_udp_checksum_of_the_sender_is_not_carried_over(switch: Twin) -> None:
    """It covers what the switch changes; zero means that there is none."""
    job = Job(ranks=2)
    switch.write(*job.entries())
    for rank in range(2):
        packet = Ether(job.packet(rank, 0, lanes([1], 32, 1)))
        del packet[UDP].chksum
        outputs = switch.send(job.port(rank), bytes(packet))
    assert dissect(outputs[job.port(0)][0])[UDP].chksum == 0


def test_results_go_only_to_ranks_that_have_a_rewriting(switch: Twin) -> None:
    job = Job(ranks=3)
    switch.write(*job.entries())
    switch.delete(job.rewrite(1))
    for rank in range(3):
        outputs = switch.send(job.port(rank), job.packet(rank, 0, lanes([1], 32, 1)))
    assert set(outputs) == {job.port(0), job.port(2)}
    assert switch.send(job.port(1), job.packet(1, 0, lanes([1], 32, 1))) == {}


def test_results_go_nowhere_without_their_group(switch: Twin) -> None:
    job = Job(ranks=2)
    switch.write(*job.entries())
    switch.delete(Group(job.group, ()))
    for rank in range(2):
        assert switch.send(job.port(rank), job.packet(rank, 0, lanes([1], 32, 1))) == {}


def test_rewritings_of_streams_are_apart(switch: Twin) -> None:
    a = Job(number=7, stream=1, ranks=2, slot_base=0)
    b = replace(a, number=8, stream=255, slot_base=8)
    switch.write(*a.entries(), *b.entries())
    for job in (a, b):
        for rank in range(2):
            outputs = switch.send(job.port(rank), job.packet(rank, 0, lanes([job.number], 32, 1)))
        assert outputs == {
            job.port(rank): [job.result(rank, 0, lanes([2 * job.number], 32, 1))] for rank in range(2)
        }


def test_ranks_of_one_port_get_a_result_each(switch: Twin) -> None:
    job = Job(ranks=6, ports=(5,))
    switch.write(*job.entries())
    for rank in range(6):
        outputs = switch.send(5, job.packet(rank, 0, lanes([1], 32, 1)))
    assert sorted(outputs[5]) == sorted(job.result(rank, 0, lanes([6], 32, 1)) for rank in range(6))


def test_delivered_counts_results_by_rank(switch: Twin) -> None:
    job = Job(ranks=3)
    switch.write(*job.entries())
    for k in range(5):
        for rank in range(3):
            switch.send(job.port(rank), job.packet(rank, k, lanes([1], 32, 1)))
    switch.send(job.port(2), job.packet(2, 4, lanes([1], 32, 1)))
    assert switch.target.delivered() == {(1, 0): 5, (1, 1): 5, (1, 2): 6}
