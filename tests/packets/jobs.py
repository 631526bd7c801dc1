"""A job as a controller would admit it: its table entries, and the packets of its ranks."""

from collections.abc import Sequence
from dataclasses import dataclass

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from netreduce.p4 import wire
from netreduce.p4.wire import Kind, Op
from packets.entries import FIRST_STREAM_GROUP, Connection, Entry, Group, Rewrite, Station
from packets.frames import NR, ip_text, mac_text


@dataclass(frozen=True)
class Job:
    """``ranks`` ranks, spread over ``ports`` in turn, on one stream."""

    number: int = 7
    stream: int = 1
    ranks: int = 3
    window: int = 4
    lane_bits: int = 32
    generation: int = 1_700_000_000
    slot_base: int = 0
    ports: Sequence[int] = (1, 2, 3, 4)

    @property
    def group(self) -> int:
        return FIRST_STREAM_GROUP + self.stream

    def port(self, rank: int) -> int:
        return self.ports[rank % len(self.ports)]

    def mac(self, rank: int) -> int:
        return 0x0200_0000_0000 | self.number << 8 | rank

    def ip(self, rank: int) -> int:
        return 10 << 24 | self.number << 8 | (rank + 1)

    def udp_port(self, rank: int) -> int:
        return wire.UDP_PORT_FIRST + (self.number + rank) % wire.UDP_PORT_COUNT

    def successor(self, rank: int) -> int:
        return (rank + 1) % self.ranks

    def predecessor(self, rank: int) -> int:
        return (rank - 1) % self.ranks

    def connection(self, rank: int) -> Connection:
        return Connection(
            job=self.number,
            rank=rank,
            port=self.port(rank),
            source=self.ip(rank),
            stream=self.stream,
            generation=self.generation,
            slot_base=self.slot_base,
            slot_mask=2 * self.window - 1,
            rank_bit=1 << rank,
            full=(1 << self.ranks) - 1,
            ranks=self.ranks,
            lane_bits=self.lane_bits,
            group=self.group,
        )

    def rewrite(self, rank: int) -> Rewrite:
        predecessor = self.predecessor(rank)
        return Rewrite(
            stream=self.stream,
            rank=rank,
            source_mac=self.mac(predecessor),
            destination_mac=self.mac(rank),
            source_ip=self.ip(predecessor),
            destination_ip=self.ip(rank),
            source_port=self.udp_port(predecessor),
            destination_port=self.udp_port(rank),
            predecessor=predecessor,
        )

    def entries(self) -> list[Entry]:
        """Everything that the job needs in a switch, in an order in which it can be written."""
        everyone = range(self.ranks)
        return [
            Group(self.group, tuple((self.port(rank), rank) for rank in everyone)),
            *(self.rewrite(rank) for rank in everyone),
            *(Station(self.mac(rank), self.port(rank)) for rank in everyone),
            *(self.connection(rank) for rank in everyone),
        ]

    def packet(
        self,
        rank: int,
        k: int,
        blocks: bytes,
        *,
        op: int = Op.SUM,
        kind: int = Kind.CONTRIBUTION,
        contributors: int = 0,
        ttl: int = 64,
        tos: int = 0,
        ip_id: int = 1,
    ) -> bytes:
        """What ``rank`` sends to its ring successor."""
        to = self.successor(rank)
        return bytes(
            Ether(src=mac_text(self.mac(rank)), dst=mac_text(self.mac(to)))
            / IP(src=ip_text(self.ip(rank)), dst=ip_text(self.ip(to)), ttl=ttl, tos=tos, id=ip_id, flags="DF")
            / UDP(sport=self.udp_port(rank), dport=self.udp_port(to), chksum=0)
            / NR(kind=kind, op=op, job=self.number, rank=rank, k=k % 2**32, contributors=contributors)
            / Raw(blocks)
        )

    def result(self, rank: int, k: int, blocks: bytes, **options: int) -> bytes:
        """What ``rank`` must receive for ``k``: its predecessor's packet with the combined blocks."""
        return self.packet(
            self.predecessor(rank), k, blocks, kind=Kind.RESULT, contributors=self.ranks, **options
        )
