"""Wire constants of the NetReduce protocol: the one place where they are written down.

``p4src/include/wire_constants.p4`` and ``host_agent/csrc/wire_constants.h`` are generated from this
module by ``python -m netreduce.p4.generate`` (``make wire``); a test fails when they are stale.
All multi-byte fields are big-endian on the wire.  See ``docs/protocol.md``.
"""

from enum import IntEnum

# --- UDP encapsulation -------------------------------------------------------------------------

UDP_PORT_FIRST = 20050
"""First UDP destination port of NetReduce packets; also the one an agent tries to bind first."""
UDP_PORT_COUNT = 64
"""Process groups of one host bind one port each out of ``UDP_PORT_FIRST … +COUNT-1``."""

NR_MAGIC = 0x4E52
NR_VERSION = 1
NR_LAYOUT = (
    ("magic", 16),
    ("version", 4),
    ("kind", 4),
    ("op", 8),
    ("job", 16),
    ("rank", 8),
    ("bth_opcode", 8),
    ("k", 32),
    ("contributors", 16),
    ("reserved", 16),
)
"""The NR header, which follows UDP: (field, bits) in wire order. ``bth_opcode`` is for trunks only."""
NR_HEADER_BYTES = sum(bits for _, bits in NR_LAYOUT) // 8

# --- Blocks ------------------------------------------------------------------------------------

BLOCK_BYTES = 256
"""Unit of aggregation: RoCE's smallest MTU, one ``bit<2048>``."""
MAX_BLOCKS = 16
BLOCK_COUNTS = (1, 2, 4, 8, 16)
"""Legal numbers of blocks in a packet (256 to 4096 payload bytes)."""

ETHERNET_HEADER_BYTES = 14
IPV4_HEADER_BYTES = 20
UDP_HEADER_BYTES = 8
FRAME_OVERHEAD_BYTES = (
    ETHERNET_HEADER_BYTES + IPV4_HEADER_BYTES + UDP_HEADER_BYTES + NR_HEADER_BYTES
)
"""Bytes of a frame in front of its first block."""

# --- Switch resources --------------------------------------------------------------------------

SLOT_COUNT = 4096
"""Aggregator slots of one switch, shared by all streams; a stream of window W uses 2W of them."""
MAX_STREAMS = 256
"""Streams with counters of their own; index 0 stands for packets of no stream."""
MAX_RANKS = 64
"""Children of one switch in one stream: the width of the seen bitmap."""
MAX_WINDOW = 64
"""BMv2's egress queues hold 64 packets and drop silently beyond."""


class Kind(IntEnum):
    """NR.kind: what a packet carries."""

    CONTRIBUTION = 0
    RESULT = 1
    PARTIAL_UP = 2
    RESULT_DOWN = 3


class Op(IntEnum):
    """NR.op: how the blocks of a stream index are combined."""

    SUM = 0
    OR = 1


class Cause(IntEnum):
    """Index of a per-stream counter: what became of a packet (``stream_index * 16 + cause``).

    Every packet to a NetReduce port is counted under exactly one cause.
    """

    FIRST = 0
    ADDED = 1
    COMPLETED = 2
    DUPLICATE_ABSORBED = 3
    DUPLICATE_ANSWERED = 4
    STALE = 5
    SPOOFED = 6
    MALFORMED = 7
    UNKNOWN = 8


CAUSE_STRIDE = 16
"""Counter cells reserved per stream."""
