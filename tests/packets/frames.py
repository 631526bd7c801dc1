"""Frames of the tests, made and taken apart by scapy: NetReduce packets and other traffic."""

from scapy.fields import BitField, ByteField, IntField, ShortField, XShortField
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from netreduce.p4 import wire


class NR(Packet):
    """The NR header of docs/protocol.md."""

    name = "NetReduce"
    fields_desc = [  # noqa: RUF012 (scapy's way)
        XShortField("magic", wire.NR_MAGIC),
        BitField("version", wire.NR_VERSION, 4),
        BitField("kind", 0, 4),
        ByteField("op", 0),
        ShortField("job", 0),
        ByteField("rank", 0),
        ByteField("bth_opcode", 0),
        IntField("k", 0),
        ShortField("contributors", 0),
        ShortField("reserved", 0),
    ]


def dissect(frame: bytes) -> Packet:
    """The frame as scapy sees it, with what follows UDP dissected as NR and the blocks as ``Raw``."""
    packet = Ether(frame)
    nr = NR(bytes(packet[UDP].payload))
    packet[UDP].remove_payload()
    return packet / nr


def has_right_lengths_and_checksum(frame: bytes) -> bool:
    """Whether IP total length, IPv4 header checksum and UDP length are those that scapy computes."""
    packet = Ether(frame)
    again = packet.copy()
    del again[IP].len, again[IP].chksum, again[UDP].len
    again = Ether(bytes(again))
    return (
        (packet[IP].len, packet[IP].chksum, packet[UDP].len)
        == (again[IP].len, again[IP].chksum, again[UDP].len)
        and packet[IP].len == len(frame) - wire.ETHERNET_HEADER_BYTES
    )


def mac_text(mac: int) -> str:
    return ":".join(f"{byte:02x}" for byte in mac.to_bytes(6, "big"))


def ip_text(address: int) -> str:
    return ".".join(str(byte) for byte in address.to_bytes(4, "big"))


def lanes(values: list[int], bits: int, blocks: int) -> bytes:
    """Blocks that begin with ``values`` in lanes of ``bits`` bits, modulo the lane, and end with zeros."""
    data = b"".join((value % (1 << bits)).to_bytes(bits // 8, "big") for value in values)
    return data.ljust(blocks * wire.BLOCK_BYTES, b"\0")


def other_traffic(source: int, destination: int, payload: bytes = b"hello", ethertype: int = 0x88B6) -> bytes:
    """A frame of another protocol between two MAC addresses."""
    return bytes(Ether(src=mac_text(source), dst=mac_text(destination), type=ethertype) / Raw(payload))
