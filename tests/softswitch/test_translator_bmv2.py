"""The same frames through BMv2: what it emits must be what the compiled program emits.

BMv2 reads and writes pcap files here.  Its queues hold 64 packets and drop silently when the machine is
busy, so frames may be missing from its output; none may be different, or in another order.
"""

from __future__ import annotations

import random
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from test_translator_parser import label, start, wide

from netreduce.softswitch.pipeline import Pipeline

PROGRAMS = Path(__file__).parent / "programs"
FRAMES = 400
SPACING_US = 2000
pytestmark = pytest.mark.bmv2


def write_pcap(path: Path, frames: list[bytes]) -> None:
    data = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    for i, frame in enumerate(frames):
        seconds, microseconds = divmod(i * SPACING_US, 1_000_000)
        data += struct.pack("<IIII", 1000 + seconds, microseconds, len(frame), len(frame)) + frame
    path.write_bytes(data)


def read_pcap(path: Path) -> list[bytes]:
    """Whole records of a file that may still be growing."""
    data = path.read_bytes() if path.exists() else b""
    frames, at = [], 24
    while at + 16 <= len(data):
        length = struct.unpack_from("<I", data, at + 8)[0]
        if at + 16 + length > len(data):
            break
        frames.append(data[at + 16 : at + 16 + length])
        at += 16 + length
    return frames


def run_bmv2(program: Path, frames: list[bytes], folder: Path, last: bytes) -> list[bytes]:
    """What comes out of port 1, up to ``last`` or until nothing more has come for seconds."""
    write_pcap(folder / "p1_in.pcap", frames)
    output = folder / "p1_out.pcap"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = ["simple_switch_grpc", "--use-files", "1", "-i", f"1@{folder / 'p1'}", str(program)]
    command += ["--", "--grpc-server-addr", address]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        size, quiet_since = -1, time.monotonic()
        while time.monotonic() < deadline:
            assert process.poll() is None, f"BMv2 ended with status {process.returncode}"
            now = output.stat().st_size if output.exists() else 0
            if now != size:
                size, quiet_since = now, time.monotonic()
            if last in read_pcap(output)[-1:] or (size > 24 and time.monotonic() - quiet_since > 5):
                break
            time.sleep(0.05)
    finally:
        process.terminate()
        process.wait(timeout=10)
    return read_pcap(output)


def parsing_frame(rng: random.Random) -> bytes:
    head = start(
        rng.choice([4, 4, 6, 6, 5, 0]),
        rng.choice([1, 2, 3, 4, 5, 9, 5, 3]),
        rng.choice([100, 150, 200, 201, 99, 0, 65535]),
        *(rng.getrandbits(width) for width in (3, 13)),
        rng.choice([0, 1, 2, 3, 4, 9]),
        rng.getrandbits(67),
    )
    count = rng.choice([1, 1, 2, 3, 4, 5, 6])
    values = [rng.choice([0x12340, 0xABC00, 0x01234, rng.getrandbits(20)]) for _ in range(count)]
    labels = b"".join(label(v, i == count - 1, rng.getrandbits(8)) for i, v in enumerate(values))
    tagged = wide(rng.getrandbits(12), rng.getrandbits(128))
    between = rng.choice([b"", b"", b"\xff\xff\xff\xff", bytes(rng.randrange(8)), b"\0\0\x12\x34"])
    frame = (
        head + between + rng.choice([labels + tagged, labels, tagged, b""]) + rng.randbytes(rng.randrange(20))
    )
    return frame[: rng.randrange(1, len(frame))] if rng.random() < 0.25 else frame


def internet_checksum(header: bytes) -> int:
    total = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def computing_frame(rng: random.Random) -> bytes:
    """TOS, which indexes registers, stays in bounds: BMv2 may crash beyond."""
    fields = [
        0x40 | rng.choice([5, 5, 5, 6]),
        rng.choice([0, 1, 2, 15]),
        rng.getrandbits(16),
        rng.choice([0, 0x7FFF, 0x8000, 0xFFFF, rng.getrandbits(16)]),
        rng.getrandbits(16),
        rng.choice([0, 1, 2, 3, 4, 64, 255]),
        rng.choice([17, 99, 6]),
        0,
        rng.getrandbits(32),
        rng.getrandbits(32),
    ]
    layout = struct.Struct(">BBHHHBBHII")
    fields[7] = internet_checksum(layout.pack(*fields)) if rng.random() < 0.7 else rng.getrandbits(16)
    frame = layout.pack(*fields) + rng.randbytes(rng.choice([0, 7, 8, 18, 19, 20, 41, 100]))
    return frame[: rng.randrange(1, len(frame))] if rng.random() < 0.1 else frame


@pytest.mark.parametrize("program, make_frame", [("parsing", parsing_frame), ("computing", computing_frame)])
def test_random_frames(program: str, make_frame: Callable[[random.Random], bytes], tmp_path: Path):
    path = PROGRAMS / f"{program}.json"
    rng = random.Random(program)
    frames = [make_frame(rng) for _ in range(FRAMES)]
    with Pipeline(path) as pipeline:
        expected = [out for frame in frames for _, out in pipeline.process(1, frame)]
    actual = run_bmv2(path, frames, tmp_path, expected[-1])
    assert len(actual) > FRAMES // 4
    at = 0
    for number, frame in enumerate(actual):
        following = [i for i in range(at, len(expected)) if expected[i] == frame]
        assert following, f"frame {number} from BMv2, {frame.hex()}, is not among those expected next"
        at = following[0] + 1
