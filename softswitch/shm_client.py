"""A shared-memory port from the client's side (``csrc/shm_port.h``), in plain Python.

For tests and small tools; the host agent has a faster driver of its own.
"""

from __future__ import annotations

import array
import ctypes
import mmap
import os
import select
import socket
import struct
import time
from ctypes import c_uint8, c_uint32

MAGIC = 0x53505254
VERSION = 1
SLOTS = 256
SLOT_BYTES = 4352
MAX_FRAME = SLOT_BYTES - 64

_HELLO = struct.Struct("=IIII")
_REPLY = struct.Struct("=IIiI112s")


class _Slot(ctypes.Structure):
    _fields_ = (("length", c_uint32), ("reserved", c_uint8 * 60), ("frame", c_uint8 * MAX_FRAME))


class Ring(ctypes.Structure):
    _fields_ = (
        ("head", c_uint32),
        ("dropped", c_uint32),
        ("pad0", c_uint8 * 56),
        ("tail", c_uint32),
        ("pad1", c_uint8 * 60),
        ("sleeping", c_uint32),
        ("pad2", c_uint8 * 60),
        ("slots", _Slot * SLOTS),
    )


class Layout(ctypes.Structure):
    _fields_ = (
        ("magic", c_uint32),
        ("version", c_uint32),
        ("pad", c_uint8 * 56),
        ("to_switch", Ring),
        ("to_host", Ring),
    )


class ShmPortError(OSError):
    """The switch refused the port; ``errno`` says why."""


def unix_address(name: str) -> str:
    """The address of a socket name; ``@name`` is in the abstract namespace."""
    return "\0" + name[1:] if name.startswith("@") else name


class ShmPort:
    """One port of a switch, used by one thread.

    Memory ordering relies on x86-64's total store order and on the interpreter not reordering accesses;
    on other machines the fence is missing.  Waking up is by doorbell, and a bell that was missed costs
    at most :data:`POLL_SECONDS`.

    Raises:
        ShmPortError: the switch refused (EBUSY, ENODEV, EPROTO …).
        OSError: there is no switch at that socket.
    """

    POLL_SECONDS = 0.05

    def __init__(self, name: str, port: int, timeout: float = 5.0):
        self.port = port
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._memory: mmap.mmap | None = None
        self._bells: list[int] = []
        try:
            # Not settimeout(): a non-blocking connect fails at once when many clients come together.
            limit = struct.pack("@ll", int(timeout), int(timeout % 1 * 1e6))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            self._socket.connect(unix_address(name))
            self._greet()
        except BaseException:
            self.close()
            raise

    def _greet(self) -> None:
        self._socket.send(_HELLO.pack(MAGIC, VERSION, self.port, 0))
        data, fds, _flags, _address = socket.recv_fds(self._socket, _REPLY.size, 3)
        if len(data) != _REPLY.size:
            raise ShmPortError("the switch closed the connection instead of answering")
        magic, version, status, _port, message = _REPLY.unpack(data)
        descriptors = array.array("i", fds)
        if status or magic != MAGIC or version != VERSION or len(descriptors) != 3:
            for fd in descriptors:
                os.close(fd)
            raise ShmPortError(status, message.rstrip(b"\0").decode(errors="replace"))
        memory, *self._bells = descriptors
        try:
            self._memory = mmap.mmap(memory, ctypes.sizeof(Layout))
        finally:
            os.close(memory)
        self.layout = Layout.from_buffer(self._memory)

    def send(self, frame: bytes) -> bool:
        """Puts a frame into the ring; False if it is full (the frame is lost, as in a full queue)."""
        if len(frame) > MAX_FRAME:
            raise ValueError(f"a frame has at most {MAX_FRAME} bytes, not {len(frame)}")
        ring = self.layout.to_switch
        if (ring.head - ring.tail) & 0xFFFFFFFF >= SLOTS:
            ring.dropped += 1
            return False
        slot = ring.slots[ring.head % SLOTS]
        ctypes.memmove(slot.frame, frame, len(frame))
        slot.length = len(frame)
        ring.head += 1
        self.ring_bell()
        return True

    def ring_bell(self) -> None:
        ring = self.layout.to_switch
        if ring.sleeping:
            ring.sleeping = 0
            os.eventfd_write(self._bells[0], 1)

    def poll(self) -> bytes | None:
        """The next frame if there is one."""
        ring = self.layout.to_host
        if ring.head == ring.tail:
            return None
        slot = ring.slots[ring.tail % SLOTS]
        frame = bytes(memoryview(slot.frame)[: slot.length])
        ring.tail += 1
        return frame

    def receive(self, timeout: float) -> bytes | None:
        """The next frame; None after ``timeout`` seconds.

        Raises:
            ConnectionError: the switch is gone and no frame is left.
        """
        deadline = time.monotonic() + timeout
        while (frame := self.poll()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self.layout.to_host.sleeping = 1
            if (frame := self.poll()) is not None:
                break
            ready, _, _ = select.select([self._bells[1], self._socket], [], [], min(left, self.POLL_SECONDS))
            if self._bells[1] in ready:
                os.eventfd_read(self._bells[1])
            elif self._socket in ready and self.layout.to_host.head == self.layout.to_host.tail:
                raise ConnectionError(f"the switch closed port {self.port}")
        self.layout.to_host.sleeping = 0
        return frame

    def drain(self, count: int, timeout: float) -> list[bytes]:
        """Up to ``count`` frames, fewer if ``timeout`` seconds pass first."""
        deadline = time.monotonic() + timeout
        frames: list[bytes] = []
        while len(frames) < count:
            frame = self.receive(max(0.0, deadline - time.monotonic()))
            if frame is None:
                break
            frames.append(frame)
        return frames

    def close(self) -> None:
        self._socket.close()
        for fd in self._bells:
            os.close(fd)
        self._bells = []
        if self._memory is not None:
            # Unmapped with the last view of it: a ring that the caller still holds keeps it alive.
            del self.layout
            self._memory = None

    def __enter__(self) -> ShmPort:
        return self

    def __exit__(self, *_) -> None:
        self.close()
