"""Which packets are aggregated at all: unknown, spoofed and malformed ones are not, and are counted."""

from dataclasses import replace

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw

from netreduce.p4 import wire
from netreduce.p4.wire import Cause, Kind, Op
from packets.frames import NR, lanes
from packets.jobs import Job
from packets.twin import Twin

JOB = Job(ranks=2)
OUR_PORTS = range(wire.UDP_PORT_FIRST, wire.UDP_PORT_FIRST + wire.UDP_PORT_COUNT)
PACKET = JOB.packet(0, 0, lanes([99], 32, 2))


@pytest.fixture
def admitted(switch: Twin) -> Twin:
    switch.write(*JOB.entries())
    return switch


def changed(frame: bytes, offset: int, value: bytes) -> bytes:
    return frame[:offset] + value + frame[offset + len(value) :]


def assert_untouched(switch: Twin) -> None:
    """The job's slots are as if nothing had come before."""
    for rank in range(2):
        outputs = switch.send(JOB.port(rank), JOB.packet(rank, 0, lanes([rank + 1], 32, 2)))
    assert outputs[JOB.port(0)] == [JOB.result(0, 0, lanes([3], 32, 2))]


class TestUnknown:
    @pytest.mark.parametrize("other", [{"number": 6}, {"number": 0xFFFF}, {"ranks": 3}])
    def test_a_contribution_to_no_job_is_forwarded(self, admitted: Twin, other: dict[str, int]) -> None:
        stranger = replace(JOB, **other)
        rank = stranger.ranks - 1
        frame = stranger.packet(rank, 0, lanes([1], 32, 1))
        frame = changed(frame, 0, JOB.mac(1).to_bytes(6, "big"))
        assert admitted.send(5, frame) == {JOB.port(1): [frame]}
        assert admitted.send_counted(5, frame) == (0, Cause.UNKNOWN)

    def test_after_the_job_is_removed(self, admitted: Twin) -> None:
        admitted.delete(*(JOB.connection(rank) for rank in range(2)))
        assert admitted.send(JOB.port(0), PACKET) == {JOB.port(1): [PACKET]}
        assert admitted.model.packets == {(0, Cause.UNKNOWN): 1}


class TestSpoofed:
    def test_from_another_port(self, admitted: Twin) -> None:
        assert admitted.send(JOB.port(1), PACKET) == {}
        assert admitted.model.packets == {(1, Cause.SPOOFED): 1}
        assert_untouched(admitted)

    @pytest.mark.parametrize("source", [JOB.ip(1), JOB.ip(0) ^ 1 << 31, JOB.ip(0) ^ 1])
    def test_from_another_address(self, admitted: Twin, source: int) -> None:
        assert admitted.send(JOB.port(0), changed(PACKET, 26, source.to_bytes(4, "big"))) == {}
        assert admitted.model.packets == {(1, Cause.SPOOFED): 1}
        assert_untouched(admitted)

    def test_cannot_ask_for_a_result(self, admitted: Twin) -> None:
        assert_untouched(admitted)
        assert admitted.send(6, PACKET) == {}


class TestMalformed:
    """With our magic on our port, but not a contribution: dropped, under stream 0."""

    @staticmethod
    def check(switch: Twin, frame: bytes) -> None:
        assert switch.send(JOB.port(0), frame) == {}
        assert switch.model.packets == {(0, Cause.MALFORMED): 1}
        assert_untouched(switch)

    @pytest.mark.parametrize("length", [45, 57, 58, 59, 313, 314, 569])
    def test_truncated(self, admitted: Twin, length: int) -> None:
        self.check(admitted, PACKET[:length])

    @pytest.mark.parametrize("extra", [1, 2, 22, 256, 3000])
    def test_trailing_bytes(self, admitted: Twin, extra: int) -> None:
        self.check(admitted, PACKET + bytes(extra))

    @pytest.mark.parametrize("length", [11, 23, 24, 25, 279, 281, 537, 791, 792, 4120, 4121, 65535])
    def test_udp_length_lies(self, admitted: Twin, length: int) -> None:
        self.check(admitted, changed(PACKET, 38, length.to_bytes(2, "big")))

    @pytest.mark.parametrize("length", [0, 20, 28, 44, 300, 555, 557, 4140, 65535])
    def test_ipv4_length_lies(self, admitted: Twin, length: int) -> None:
        self.check(admitted, changed(PACKET, 16, length.to_bytes(2, "big")))

    @pytest.mark.parametrize("blocks", [1, 4, 8, 16])
    def test_both_lengths_lie_alike(self, admitted: Twin, blocks: int) -> None:
        udp = wire.UDP_HEADER_BYTES + wire.NR_HEADER_BYTES + blocks * wire.BLOCK_BYTES
        lying = changed(PACKET, 38, udp.to_bytes(2, "big"))
        self.check(admitted, changed(lying, 16, (udp + 20).to_bytes(2, "big")))

    @pytest.mark.parametrize("payload", [0, 1, 255, 257, 3 * 256, 5 * 256, 15 * 256, 4096 + 1])
    def test_sizes_that_are_no_legal_number_of_blocks(self, admitted: Twin, payload: int) -> None:
        self.check(admitted, JOB.packet(0, 0, bytes(payload)))

    @pytest.mark.parametrize("kind", [Kind.RESULT, Kind.PARTIAL_UP, Kind.RESULT_DOWN, 4, 15])
    def test_kinds_that_no_host_sends(self, admitted: Twin, kind: int) -> None:
        self.check(admitted, JOB.packet(0, 0, lanes([1], 32, 1), kind=kind))

    @pytest.mark.parametrize("op", [2, 3, 0x80, 0xFF])
    def test_unknown_operations(self, admitted: Twin, op: int) -> None:
        self.check(admitted, JOB.packet(0, 0, lanes([1], 32, 1), op=op))


class TestForeign:
    """On our port without our magic: somebody else's datagram goes its way, counted under stream 0."""

    @staticmethod
    def check(switch: Twin, frame: bytes) -> None:
        assert switch.send(JOB.port(0), frame) == {JOB.port(1): [frame]}
        assert switch.model.packets == {(0, Cause.MALFORMED): 1}
        assert_untouched(switch)

    @pytest.mark.parametrize("offset", [42, 43, 44], ids=["magic", "magic low", "version"])
    def test_other_magic_or_version(self, admitted: Twin, offset: int) -> None:
        self.check(admitted, changed(PACKET, offset, bytes([PACKET[offset] ^ 0x20])))

    @pytest.mark.parametrize("length", [42, 43, 44])
    def test_frame_ends_before_the_magic(self, admitted: Twin, length: int) -> None:
        self.check(admitted, PACKET[:length])

    @pytest.mark.parametrize("length", [0, 7, 8, 9, 10])
    def test_datagram_ends_before_the_magic(self, admitted: Twin, length: int) -> None:
        """What follows the datagram is not looked at, even if it reads like ours."""
        self.check(admitted, changed(PACKET, 38, length.to_bytes(2, "big")))

    @pytest.mark.parametrize("payload", [b"", b"x", b"NR", b"N" * 1000])
    def test_short_and_long_payloads(self, admitted: Twin, payload: bytes) -> None:
        ether = Ether(PACKET)
        udp = UDP(dport=wire.UDP_PORT_FIRST)
        self.check(admitted, bytes(Ether(src=ether.src, dst=ether.dst) / IP() / udp / Raw(payload)))

    @pytest.mark.parametrize("port", [OUR_PORTS[i] for i in (0, 1, 13, 14, 45, 46, 62, 63)])
    def test_all_our_ports_are_watched(self, admitted: Twin, port: int) -> None:
        self.check(admitted, changed(PACKET, 36, port.to_bytes(2, "big") + PACKET[38:42] + b"xx"))


class TestOther:
    """Not to a NetReduce port, however it may look: forwarded, not counted."""

    @staticmethod
    def check(switch: Twin, frame: bytes) -> None:
        assert switch.send(JOB.port(0), frame) == {JOB.port(1): [frame]}
        assert switch.model.packets == {}
        assert_untouched(switch)

    @pytest.mark.parametrize("length", [14, 15, 33, 34, 41])
    def test_truncated_before_the_udp_header_ends(self, admitted: Twin, length: int) -> None:
        self.check(admitted, PACKET[:length])

    @pytest.mark.parametrize("port", [0, 53, 4791, OUR_PORTS.start - 1, OUR_PORTS.stop, 65535])
    def test_other_udp_ports(self, admitted: Twin, port: int) -> None:
        self.check(admitted, changed(PACKET, 36, port.to_bytes(2, "big")))

    @pytest.mark.parametrize(
        "change",
        [
            (12, b"\x86\xdd"),
            (12, b"\x08\x06"),
            (14, b"\x65"),
            (14, b"\x46"),
            (14, b"\x44"),
            (20, b"\x20\x00"),
            (20, b"\x00\x01"),
            (20, b"\x1f\xff"),
            (23, b"\x06"),
            (23, b"\x00"),
        ],
        ids=lambda change: f"{change[0]}={change[1].hex()}",
    )
    def test_other_protocols_options_and_fragments(self, admitted: Twin, change: tuple[int, bytes]) -> None:
        self.check(admitted, changed(PACKET, *change))

    @pytest.mark.parametrize("layer", [IPv6(), Dot1Q(vlan=3) / IP()], ids=["IPv6", "VLAN"])
    def test_our_payload_over_other_layers(self, admitted: Twin, layer: Packet) -> None:
        if Dot1Q in layer and not admitted.target.takes_any_frame:
            pytest.skip("the kernel takes VLAN tags off")
        ether = Ether(src=Ether(PACKET).src, dst=Ether(PACKET).dst)
        payload = UDP(dport=wire.UDP_PORT_FIRST) / NR(job=JOB.number) / Raw(bytes(256))
        self.check(admitted, bytes(ether / layer / payload))


def test_flags_that_do_not_matter(admitted: Twin) -> None:
    """The reserved bit and "don't fragment" neither make a fragment nor keep a packet out."""
    for rank, flags in ((0, b"\x80\x00"), (1, b"\x00\x00")):
        outputs = admitted.send(JOB.port(rank), changed(JOB.packet(rank, 0, lanes([1], 32, 1)), 20, flags))
    assert set(outputs) == {JOB.port(0), JOB.port(1)}


@pytest.mark.parametrize("op", [Op.SUM, Op.OR])
def test_fields_that_a_contribution_leaves_to_the_switch(admitted: Twin, op: Op) -> None:
    """Contributors of a result are the switch's word, not the sender's."""
    for rank in range(2):
        outputs = admitted.send(JOB.port(rank), JOB.packet(rank, 0, bytes(256), op=op, contributors=77))
    assert outputs[JOB.port(0)] == [JOB.result(0, 0, bytes(256), op=op)]
