"""How fast one core runs the compiled P4 program: ``python benchmarks/pipeline_throughput.py``.

No ports are involved.  Ranks contribute in turn to one slot after another, so that every ``ranks``-th packet
completes a slot and leaves as ``ranks`` results.  Time is CPU time of the calling thread; the best of several
runs counts.
"""

from __future__ import annotations

import argparse
import ctypes
import struct

from netreduce.p4 import artifacts, wire
from netreduce.p4.generate import nr_offsets
from netreduce.softswitch.native_cache import load_shared_object
from netreduce.softswitch.pipeline import Pipeline
from netreduce.softswitch.pipeline_abi import TransmitFunction

LOOP = r"""
#include <stdint.h>
#include <string.h>
#include <time.h>

typedef void (*process)(void *, uint32_t, const uint8_t *, uint32_t);

static uint64_t frames;

void transmit(void *context, uint32_t port, const uint8_t *frame, uint32_t length) {
  (void)context; (void)port; (void)frame; (void)length;
  ++frames;
}

uint64_t transmitted(void) { return frames; }

/* Seconds for `count` stream indices from `first` on, each contributed by every rank. */
double run(process function, void *instance, uint8_t **contributions, uint32_t length, uint32_t ranks,
           uint32_t k_offset, uint32_t first, uint32_t count) {
  struct timespec begin, end;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  for (uint32_t k = first; k != first + count; ++k)
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      uint32_t wire = __builtin_bswap32(k);
      memcpy(contributions[rank] + k_offset, &wire, 4);
      function(instance, rank + 1, contributions[rank], length);
    }
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  return (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
}
"""

JOB, STREAM, GENERATION, WINDOW = 7, 1, 1_700_000_000, 64
GROUP = 2 + STREAM
K_OFFSET = wire.FRAME_OVERHEAD_BYTES - wire.NR_HEADER_BYTES + nr_offsets()["k"]
LANE_MASK = sum(1 << bit for bit in range(31, 8 * wire.BLOCK_BYTES, 32))


def contribution(rank: int, blocks: int) -> bytes:
    payload = bytes((7 * i + rank) % 256 for i in range(blocks * wire.BLOCK_BYTES))
    udp_length = wire.UDP_HEADER_BYTES + wire.NR_HEADER_BYTES + len(payload)
    address = 0x0A000001 + rank
    ethernet = b"\x02" * 6 + b"\x04" * 6 + b"\x08\0"
    ip_length = wire.IPV4_HEADER_BYTES + udp_length
    ip = struct.pack(">BBHHHBBHII", 0x45, 0, ip_length, 0, 0, 64, 17, 0, address, 0x0A0000FF)
    udp = struct.pack(">HHHH", wire.UDP_PORT_FIRST, wire.UDP_PORT_FIRST, udp_length, 0)
    nr = struct.pack(">HBBHBBIHH", wire.NR_MAGIC, wire.NR_VERSION << 4, wire.Op.SUM, JOB, rank, 0, 0, 0, 0)
    return ethernet + ip + udp + nr + payload


def admit(pipeline: Pipeline, ranks: int) -> None:
    full = (1 << ranks) - 1
    for rank in range(ranks):
        source = 0x0A000001 + rank
        slots = (0, 2 * WINDOW - 1)
        data = [rank + 1, source, STREAM, GENERATION, *slots, 1 << rank, full, ranks, LANE_MASK, GROUP]
        table = "NetreduceIngress.connection.connection"
        pipeline.insert(table, (JOB, rank), "NetreduceIngress.connection.contribute", data)
        data = [1, 2, 3, 4, wire.UDP_PORT_FIRST, wire.UDP_PORT_FIRST, (rank - 1) % ranks]
        pipeline.insert(
            "NetreduceEgress.rewrite.rewrite", (STREAM, rank), "NetreduceEgress.rewrite.as_predecessor", data
        )
    pipeline.set_multicast(GROUP, [(rank + 1, rank) for rank in range(ranks)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=4, help="contributors of every slot (default: 4)")
    parser.add_argument("--count", type=int, default=100_000, help="stream indices per run (default: 100000)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each size (default: 3)")
    options = parser.parse_args()
    loop = load_shared_object([LOOP], "throughput", ["-fvisibility=default"])
    loop.run.restype = ctypes.c_double
    loop.transmitted.restype = ctypes.c_uint64
    transmit = ctypes.cast(loop.transmit, TransmitFunction)
    with Pipeline(artifacts.bmv2_json(), transmit=transmit) as pipeline:
        admit(pipeline, options.ranks)
        function = ctypes.cast(pipeline.ops.process, ctypes.c_void_p)
        first = 0
        print("blocks  bytes  Mcontributions/s  ns each")
        for blocks in wire.BLOCK_COUNTS:
            packets = [contribution(rank, blocks) for rank in range(options.ranks)]
            buffers = [ctypes.create_string_buffer(packet, len(packet)) for packet in packets]
            frames = (ctypes.c_void_p * options.ranks)(*map(ctypes.addressof, buffers))
            best = float("inf")
            for _ in range(options.runs):
                before = loop.transmitted()
                instance = ctypes.c_void_p(pipeline.instance)
                shape = (len(packets[0]), options.ranks, K_OFFSET, first, options.count)
                best = min(best, loop.run(function, instance, frames, *shape))
                first += options.count
                results = loop.transmitted() - before
                assert results == options.ranks * options.count, (
                    f"{results} results: not every slot completed"
                )
            total = options.ranks * options.count
            size, rate, each = blocks * wire.BLOCK_BYTES, total / best / 1e6, best / total * 1e9
            print(f"{blocks:6}  {size:5}  {rate:16.2f}  {each:7.0f}")


if __name__ == "__main__":
    main()
