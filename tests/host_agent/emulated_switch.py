"""A switch in a thread, for tests of the datapath: the slot protocol of docs/protocol.md over shm ports.

An independent statement of what the P4 program does, small enough to check by eye, that can lose, repeat,
reorder and tamper with packets by seed. It is slow, and knows nothing but NetReduce packets.
"""

from __future__ import annotations

import array
import contextlib
import mmap
import os
import random
import select
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np

from netreduce.host_agent._datapath import (
    Communicator,
    CommunicatorConfig,
    Endpoint,
    StreamConfig,
    bind_udp,
)
from netreduce.p4.wire import (
    BLOCK_BYTES,
    BLOCK_COUNTS,
    NR_MAGIC,
    NR_VERSION,
    UDP_PORT_COUNT,
    UDP_PORT_FIRST,
    Kind,
    Op,
)
from netreduce.softswitch.shm_client import MAGIC, SLOT_BYTES, SLOTS, VERSION

RING_BYTES = 3 * 64 + SLOTS * SLOT_BYTES
LAYOUT_BYTES = 64 + 2 * RING_BYTES
HELLO, REPLY = struct.Struct("=IIII"), struct.Struct("=IIiI112s")

FRAME = struct.Struct("!6s6sHBBHHHBBH4s4sHHHH")
NR = struct.Struct("!HBBHBBIHH")

_names = count()


@dataclass
class Faults:
    """Probabilities, for each frame in each direction, drawn from ``seed``."""

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    seed: int = 1


@dataclass
class Contribution:
    """A parsed contribution; a tamper hook may change it in place."""

    rank: int
    job: int
    op: int
    k: int
    blocks: np.ndarray  # uint8


@dataclass
class Slot:
    k: int | None = None
    seen: int = 0
    done: bool = False
    blocks: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint8))


class Ring:
    """One direction of a port. Every access is a single aligned 32-bit load or store."""

    def __init__(self, memory: mmap.mmap, offset: int) -> None:
        words = np.frombuffer(memory, np.uint32, 3 * 16, offset)
        self.head, self.tail, self.sleeping = words[0:1], words[16:17], words[32:33]
        self.slots = np.frombuffer(memory, np.uint8, SLOTS * SLOT_BYTES, offset + 192).reshape(
            SLOTS, SLOT_BYTES
        )
        self.lengths = self.slots[:, :4].view(np.uint32)

    def take(self) -> bytes | None:
        tail = int(self.tail[0])
        if tail == int(self.head[0]):
            return None
        slot = tail % SLOTS
        frame = self.slots[slot, 64 : 64 + int(self.lengths[slot, 0])].tobytes()
        self.tail[0] = (tail + 1) & 0xFFFFFFFF
        return frame

    def put(self, frame: bytes) -> None:
        head = int(self.head[0])
        if (head - int(self.tail[0])) & 0xFFFFFFFF >= SLOTS:
            return
        slot = head % SLOTS
        self.lengths[slot, 0] = len(frame)
        self.slots[slot, 64 : 64 + len(frame)] = np.frombuffer(frame, np.uint8)
        self.head[0] = (head + 1) & 0xFFFFFFFF


class Port:
    """A plugged-in client."""

    def __init__(self, client: socket.socket, number: int) -> None:
        self.client, self.number = client, number
        fd = os.memfd_create("emulated-port", os.MFD_CLOEXEC)
        os.ftruncate(fd, LAYOUT_BYTES)
        self.memory = mmap.mmap(fd, LAYOUT_BYTES)
        struct.pack_into("=II", self.memory, 0, MAGIC, VERSION)
        self.wake_switch = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.wake_client = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.from_host = Ring(self.memory, 64)
        self.to_host = Ring(self.memory, 64 + RING_BYTES)
        reply = REPLY.pack(MAGIC, VERSION, 0, number, b"")
        rights = array.array("i", [fd, self.wake_switch, self.wake_client])
        client.sendmsg([reply], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        os.close(fd)

    def close(self) -> None:
        self.client.close()
        os.close(self.wake_switch)
        os.close(self.wake_client)


class EmulatedSwitch:
    """Ranks plug into the port of their number.

    tamper: called with every contribution that is about to be combined; what it changes is what is added.
    forward_only: behave like a switch without tables: contributions go to the successor as they are.
    """

    def __init__(
        self,
        world_size: int,
        *,
        window: int = 16,
        max_blocks: int = 16,
        lane_bits: tuple[int, ...] = (32, 64),
        faults: Faults | None = None,
        tamper: Callable[[Contribution], None] | None = None,
        forward_only: bool = False,
        first_k: int = 0,
    ) -> None:
        self.world_size, self.window, self.max_blocks = world_size, window, max_blocks
        self.lane_bits, self.first_k = lane_bits, first_k
        self.faults = faults or Faults()
        self.tamper, self.forward_only = tamper, forward_only
        self.jobs = {100 + i: bits for i, bits in enumerate(lane_bits)}
        self.slots = {job: [Slot() for _ in range(2 * window)] for job in self.jobs}
        self.causes: dict[str, int] = dict.fromkeys(
            ("first", "added", "completed", "absorbed", "answered", "stale", "malformed"), 0
        )
        self.error: BaseException | None = None
        self.path = f"@netreduce-emulated-{os.getpid()}-{next(_names)}"
        self._random = random.Random(self.faults.seed)
        self._ports: dict[int, Port] = {}
        self._held: list[tuple[int, bytes]] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind("\0" + self.path[1:])
        self._listener.listen(64)
        self._stop = os.eventfd(0)
        self._thread = threading.Thread(target=self._main, name="emulated-switch", daemon=True)

    def __enter__(self) -> EmulatedSwitch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        """Dies: every client sees the end of its socket."""
        if self._stop >= 0:
            os.eventfd_write(self._stop, 1)
            self._thread.join()
            os.close(self._stop)
            self._stop = -1

    # --- what the ranks need ---------------------------------------------------------------------

    def endpoint(self, rank: int) -> Endpoint:
        rank %= self.world_size
        port = UDP_PORT_FIRST + rank % 3
        return Endpoint(mac=f"02:00:00:00:01:{rank:02x}", ip=f"10.0.0.{rank + 1}", udp_port=port)

    def config(self, rank: int, /, **changes: Any) -> CommunicatorConfig:
        config = CommunicatorConfig()
        values = {
            "job_name": "emulated",
            "rank": rank,
            "world_size": self.world_size,
            "window": self.window,
            "max_blocks": self.max_blocks,
            "float_lane_bits": self.lane_bits[0],
            "streams": [StreamConfig(wire_job=job, lane_bits=bits) for job, bits in self.jobs.items()],
            "self": self.endpoint(rank),
            "successor": self.endpoint(rank + 1),
            "predecessor": self.endpoint(rank - 1),
            "switch_name": "emulated-1",
            "first_k": self.first_k,
        }
        for name, value in (values | changes).items():
            setattr(config, name, value)
        return config

    def communicator(self, rank: int, /, **changes: Any) -> Communicator:
        return Communicator.over_shm(self.config(rank, **changes), self.path, rank)

    def run(self, body: Callable[[int, Communicator], Any], **changes: Any) -> list[Any]:
        """Calls ``body(rank, communicator)`` in a thread per rank; returns what each returned or raised."""

        def one(rank: int) -> Any:
            try:
                return body(rank, self.communicator(rank, **changes))
            except Exception as error:
                return error

        with ThreadPoolExecutor(self.world_size) as pool:
            return list(pool.map(one, range(self.world_size)))

    # --- the thread --------------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            while self._serve():
                pass
        except BaseException as error:
            self.error = error
        finally:
            self._listener.close()
            for port in self._ports.values():
                port.close()

    def _serve(self) -> bool:
        busy = False
        for number, port in list(self._ports.items()):
            for _ in range(16):
                frame = port.from_host.take()
                if frame is None:
                    break
                busy = True
                for copy in self._inflict(frame):
                    self._process(number, copy)
        if busy:
            return not select.select([self._stop], [], [], 0)[0]
        # Idle: what was held back for reordering goes out now.
        held, self._held = self._held, []
        for number, frame in held:
            self._emit(number, frame)
        waiting = [self._listener, self._stop, *(p.client for p in self._ports.values())]
        wakeups = {p.wake_switch: p for p in self._ports.values()}
        for port in self._ports.values():
            port.from_host.sleeping[0] = 1
        # The timeout stands in for the memory fence between `sleeping` and `head`, which Python lacks.
        ready = select.select([*waiting, *wakeups], [], [], 0.001)[0]
        for item in ready:
            if item in wakeups:
                if wakeups[item] in self._ports.values():  # not closed by an earlier item of this round
                    os.eventfd_read(item)
            elif item is self._listener:
                self._accept()
            elif item == self._stop:
                return False
            else:
                number = next(n for n, p in self._ports.items() if p.client is item)
                if not item.recv(1):
                    self._ports.pop(number).close()
        return True

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        magic, version, number, _ = HELLO.unpack(client.recv(64))
        assert (magic, version) == (MAGIC, VERSION)
        if number >= self.world_size or number in self._ports:
            client.send(REPLY.pack(MAGIC, VERSION, 16, number, b"port in use"))
            client.close()
        else:
            self._ports[number] = Port(client, number)

    def _inflict(self, frame: bytes) -> list[bytes]:
        """The copies of a frame that survive."""
        draw = self._random.random
        return [
            copy
            for copy in [frame] * (2 if draw() < self.faults.duplication else 1)
            if draw() >= self.faults.loss
        ]

    def _emit(self, number: int, frame: bytes) -> None:
        port = self._ports.get(number)
        if port is not None:
            port.to_host.put(frame)
            os.eventfd_write(port.wake_client, 1)

    def _send(self, number: int, frame: bytes) -> None:
        for copy in self._inflict(frame):
            if self._random.random() < self.faults.reordering:
                self._held.append((number, copy))
            else:
                self._emit(number, copy)
                if self._held and self._random.random() < 0.3:
                    self._emit(*self._held.pop(self._random.randrange(len(self._held))))

    # --- the slot protocol -------------------------------------------------------------------------

    def _process(self, number: int, frame: bytes) -> None:
        parsed = self._parse(number, frame)
        if parsed is None:
            self.causes["malformed"] += 1
            return
        if self.forward_only:
            successor = (number + 1) % self.world_size
            self._send(successor, self._wrap(successor, self._unwrap(number, frame)))
            return
        if self.tamper is not None:
            self.tamper(parsed)
        slot = self.slots[parsed.job][parsed.k % (2 * self.window)]
        bit = 1 << parsed.rank
        age = (parsed.k - slot.k) & 0xFFFFFFFF if slot.k is not None else 1
        if age == 0 and slot.done:
            self.causes["answered"] += 1
            self._result(parsed.rank, parsed, slot)
            return
        if age == 0 and slot.seen & bit:
            self.causes["absorbed"] += 1
            return
        if age >= 1 << 31:
            self.causes["stale"] += 1
            return
        if age == 0:
            self.causes["added"] += 1
            slot.blocks = self._combine(parsed, slot.blocks)
            slot.seen |= bit
        else:
            self.causes["first"] += 1
            slot.k, slot.seen, slot.blocks, slot.done = parsed.k, bit, parsed.blocks, False
        if slot.seen == (1 << self.world_size) - 1:
            self.causes["completed"] += 1
            slot.done = True
            for rank in range(self.world_size):
                self._result(rank, parsed, slot)

    def _parse(self, number: int, frame: bytes) -> Contribution | None:
        """A contribution that its rank could have sent; None for anything else."""
        payload = self._unwrap(number, frame)
        if len(payload) < NR.size or (len(payload) - NR.size) // BLOCK_BYTES not in BLOCK_COUNTS:
            return None
        magic, version_kind, op, job, rank, _, k, contributors, reserved = NR.unpack_from(payload)
        if (magic, version_kind) != (NR_MAGIC, NR_VERSION << 4 | Kind.CONTRIBUTION) or op not in (
            Op.SUM,
            Op.OR,
        ):
            return None
        if job not in self.jobs or rank != number or (contributors, reserved) != (0, 0):
            return None
        return Contribution(rank, job, op, k, np.frombuffer(payload, np.uint8, offset=NR.size).copy())

    def _combine(self, parsed: Contribution, stored: np.ndarray) -> np.ndarray:
        """Lane-wise sum or OR over the blocks that both have; the longer one's others stay."""
        longer, shorter = sorted((parsed.blocks, stored), key=len, reverse=True)
        result, n = longer.copy(), len(shorter)
        if parsed.op == Op.OR:
            result[:n] |= shorter
        else:
            lane = f"u{self.jobs[parsed.job] // 8}"
            total = longer[:n].view(f">{lane}").astype(lane) + shorter.view(f">{lane}").astype(lane)
            result[:n] = total.astype(f">{lane}").view(np.uint8)
        return result

    def _result(self, rank: int, parsed: Contribution, slot: Slot) -> None:
        blocks = slot.blocks[: len(parsed.blocks)].tobytes().ljust(len(parsed.blocks), b"\0")
        predecessor = (rank - 1) % self.world_size
        kind = NR_VERSION << 4 | Kind.RESULT
        header = NR.pack(NR_MAGIC, kind, parsed.op, parsed.job, predecessor, 0, parsed.k, self.world_size, 0)
        self._send(rank, self._wrap(rank, header + blocks))

    # --- frames ------------------------------------------------------------------------------------

    def _unwrap(self, number: int, frame: bytes) -> bytes:
        """The payload of a frame with the headers that rank `number` must send; empty if they are wrong."""
        if len(frame) < FRAME.size:
            return b""
        mine, next_ = self.endpoint(number), self.endpoint(number + 1)
        length, checksum = len(frame) - 14, int.from_bytes(frame[24:26], "big")
        expected = self._headers(mine, next_, length - 28, checksum)
        return (
            frame[FRAME.size :] if frame[: FRAME.size] == expected and not ip_checksum(frame[14:34]) else b""
        )

    def _wrap(self, rank: int, payload: bytes) -> bytes:
        """The frame in which `rank` expects a payload from its predecessor."""
        source, destination = self.endpoint(rank - 1), self.endpoint(rank)
        checksum = ip_checksum(self._headers(source, destination, len(payload), 0)[14:34])
        return self._headers(source, destination, len(payload), checksum) + payload

    @staticmethod
    def _headers(source: Endpoint, destination: Endpoint, payload: int, checksum: int) -> bytes:
        return FRAME.pack(
            *(bytes.fromhex(e.mac.replace(":", "")) for e in (destination, source)),
            *(0x0800, 0x45, 0, 28 + payload, 0, 0x4000, 64, 17, checksum),
            *(socket.inet_aton(e.ip) for e in (source, destination)),
            *(source.udp_port, destination.udp_port, 8 + payload, 0),
        )


class EmulatedUdpSwitch(EmulatedSwitch):
    """The same over UDP on the loopback interface, without root.

    For each rank the switch has a socket that plays both neighbours: successor and predecessor.
    """

    def __init__(self, world_size: int, **options: Any) -> None:
        super().__init__(world_size, **options)
        self._sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(world_size)]
        for s in self._sockets:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
            s.bind(("127.0.0.1", 0))
            s.setblocking(False)
        self._peers: dict[int, tuple[str, int]] = {}

    def config(self, rank: int, /, **changes: Any) -> CommunicatorConfig:
        ip, port = self._sockets[rank].getsockname()
        neighbour = Endpoint(mac="02:00:00:00:00:01", ip=ip, udp_port=port)
        return super().config(rank, **({"successor": neighbour, "predecessor": neighbour} | changes))

    def communicator(self, rank: int, /, **changes: Any) -> Communicator:
        udp = bind_udp("127.0.0.1", UDP_PORT_FIRST, UDP_PORT_COUNT)
        here = Endpoint(mac="02:00:00:00:00:02", ip=udp.ip, udp_port=udp.port)
        return Communicator.over_udp(self.config(rank, self=here, **changes), udp)

    def _serve(self) -> bool:
        idle = True
        for number, s in enumerate(self._sockets):
            for _ in range(16):
                try:
                    payload, self._peers[number] = s.recvfrom(65536)
                except (BlockingIOError, ConnectionRefusedError):
                    break
                idle = False
                for copy in self._inflict(payload):
                    self._process(number, copy)
        if idle:
            held, self._held = self._held, []
            for number, payload in held:
                self._emit(number, payload)
        ready = select.select([self._stop, *self._sockets], [], [], 0.01 if idle else 0)[0]
        if self._stop in ready:
            for s in self._sockets:
                s.close()
            return False
        return True

    def _emit(self, number: int, frame: bytes) -> None:
        if number in self._peers:
            with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
                self._sockets[number].sendto(frame, self._peers[number])

    def _unwrap(self, number: int, frame: bytes) -> bytes:
        return frame

    def _wrap(self, rank: int, payload: bytes) -> bytes:
        return payload


def ip_checksum(header: bytes) -> int:
    """RFC 1071; 0 over a header that contains its right checksum."""
    total = sum(struct.unpack("!10H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def total(statistics: list[Any]) -> SimpleNamespace:
    """The ranks' statistics added up."""
    names = [name for name in dir(statistics[0]) if not name.startswith("_")]
    return SimpleNamespace(**{name: sum(getattr(s, name) for s in statistics) for name in names})
