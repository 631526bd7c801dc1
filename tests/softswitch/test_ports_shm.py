"""Shared-memory ports: frames pass, and no client can block or break the switch."""

import ctypes
import errno
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest
from hub import echo_frame, flood_frame, frame, running_hub

from netreduce.softswitch import shm_client
from netreduce.softswitch.core import PortKind, SwitchCore
from netreduce.softswitch.core_library import SwitchError
from netreduce.softswitch.shm_client import ShmPort, unix_address

SOON = 10.0
"""Seconds until a test gives up on something that takes milliseconds."""


def eventually(condition, what: str) -> None:
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen within {SOON} s: {what}"
        time.sleep(0.002)


@pytest.fixture
def hub():
    with running_hub() as core:
        yield core


def test_layout_is_the_headers(tmp_path) -> None:
    """The client's structures against the compiler's view of shm_port.h."""
    source = r"""
        #include <stddef.h>
        #include <stdio.h>
        #include "shm_port.h"
        int main(void) {
          printf("%zu %zu %zu %zu %zu %zu %zu %u %u %u %u", sizeof(shm_port_layout), sizeof(shm_port_ring),
                 offsetof(shm_port_layout, to_switch), offsetof(shm_port_layout, to_host),
                 offsetof(shm_port_ring, sleeping), sizeof(shm_port_slot), offsetof(shm_port_slot, frame),
                 SHM_PORT_SLOTS, SHM_PORT_MAX_FRAME, SHM_PORT_MAGIC, SHM_PORT_VERSION);
        }"""
    from netreduce.softswitch.build import CSRC

    program = tmp_path / "layout"
    command = ["gcc", "-I", CSRC, "-x", "c", "-", "-o", program]
    subprocess.run(command, input=source, text=True, check=True)
    seen = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    layout, ring = shm_client.Layout, shm_client.Ring
    expected = (
        ctypes.sizeof(layout),
        ctypes.sizeof(ring),
        layout.to_switch.offset,
        layout.to_host.offset,
        ring.sleeping.offset,
        shm_client.SLOT_BYTES,
        shm_client._Slot.frame.offset,
        shm_client.SLOTS,
        shm_client.MAX_FRAME,
        shm_client.MAGIC,
        shm_client.VERSION,
    )
    assert tuple(map(int, seen.split())) == expected


def test_unicast_and_flood(hub) -> None:
    with ShmPort(hub.socket, 1) as a, ShmPort(hub.socket, 2) as b, ShmPort(hub.socket, 3) as c:
        a.send(frame(2, b"to b"))
        assert b.receive(SOON) == frame(2, b"to b")
        b.send(flood_frame(b"to all"))
        assert a.receive(SOON) == flood_frame(b"to all")
        assert c.receive(SOON) == flood_frame(b"to all")
        a.send(frame(2, b"fence"))
        assert b.receive(SOON) == frame(2, b"fence")  # b did not get its own flood
        stats = hub.port_stats(1)
        assert (stats.kind, stats.up, stats.rx_frames, stats.tx_frames) == (PortKind.SHM, True, 2, 1)
        assert stats.rx_bytes == len(frame(2, b"to b")) + len(frame(2, b"fence"))


def test_frames_keep_their_order_through_many_ring_turns(hub) -> None:
    count = 5 * shm_client.SLOTS
    with ShmPort(hub.socket, 1) as a, ShmPort(hub.socket, 2) as b:
        received = []
        sent = 0
        while len(received) < count:
            while sent < count and sent - len(received) < 100:
                assert a.send(frame(2, struct.pack("!I", sent)))
                sent += 1
            got = b.receive(SOON)
            assert got is not None, f"frame {len(received)} is missing"
            received.append(struct.unpack("!I", got[14:])[0])
        assert received == list(range(count))


@pytest.mark.parametrize("size", [14, 15, 60, 1514, shm_client.MAX_FRAME])
def test_sizes(hub, size: int) -> None:
    data = frame(2, bytes(i & 0xFF for i in range(size - 14)))
    with ShmPort(hub.socket, 1) as a, ShmPort(hub.socket, 2) as b:
        a.send(data)
        assert b.receive(SOON) == data


def test_full_ring_drops_and_counts(hub) -> None:
    """A receiver that does not read loses frames; nobody waits for it."""
    extra = 40
    with ShmPort(hub.socket, 1) as a, ShmPort(hub.socket, 2) as b:
        for i in range(shm_client.SLOTS + extra):
            eventually(lambda i=i: a.send(frame(2, struct.pack("!I", i))), "room in the ring")
        eventually(lambda: hub.port_stats(2).tx_dropped == extra, "the drops are counted")
        assert b.layout.to_host.dropped == extra
        frames = b.drain(shm_client.SLOTS, SOON)
        assert [struct.unpack("!I", f[14:])[0] for f in frames] == list(range(shm_client.SLOTS))
        assert b.poll() is None


def test_refusals(hub) -> None:
    with ShmPort(hub.socket, 1):
        for port in (1, 65, 0, 0xFFFFFFFF):
            why = errno.EBUSY if port == 1 else errno.ENODEV
            with pytest.raises(shm_client.ShmPortError) as refused:
                ShmPort(hub.socket, port)
            assert refused.value.errno == why
            assert str(port) in str(refused.value)


@pytest.mark.parametrize(
    "hello",
    [
        struct.pack("=IIII", shm_client.MAGIC, 2, 1, 0),
        struct.pack("=IIII", 0, shm_client.VERSION, 1, 0),
        b"x",
        b"\0" * 4096,
    ],
    ids=["other version", "no magic", "short", "long"],
)
def test_wrong_hello_is_answered_and_closed(hub, hello: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        peer.settimeout(SOON)
        peer.connect(unix_address(hub.socket))
        peer.send(hello)
        data, fds, _, _ = socket.recv_fds(peer, 4096, 3)
        assert struct.unpack_from("=IIi", data)[2] == errno.EPROTO
        assert not fds
        assert peer.recv(1) == b""
    with ShmPort(hub.socket, 1) as a:
        a.send(echo_frame(1))
        assert a.receive(SOON)


def test_silent_clients_do_not_lock_others_out(hub) -> None:
    """Many connections that never say hello give way to one that does."""
    silent = []
    try:
        for _ in range(80):
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            peer.settimeout(SOON)
            peer.connect(unix_address(hub.socket))
            silent.append(peer)
        with ShmPort(hub.socket, 1) as a:
            a.send(echo_frame(1))
            assert a.receive(SOON)
    finally:
        for peer in silent:
            peer.close()


def test_port_is_free_again_after_close_and_starts_empty(hub) -> None:
    with ShmPort(hub.socket, 1) as a, ShmPort(hub.socket, 2):
        a.send(frame(2, b"never read"))
        eventually(lambda: hub.port_stats(2).tx_frames == 1, "the frame is in b's ring")
    for port in (1, 2):
        eventually(lambda port=port: hub.port_stats(port).kind is PortKind.NONE, "the port is free")
    with ShmPort(hub.socket, 1) as a, ShmPort(hub.socket, 2) as b:
        a.send(frame(2, b"new"))
        assert b.receive(SOON) == frame(2, b"new")


def test_last_frames_of_a_client_that_leaves_are_delivered(hub) -> None:
    with ShmPort(hub.socket, 2) as b:
        with ShmPort(hub.socket, 1) as a:
            for i in range(100):
                a.send(frame(2, bytes([i])))
        assert [f[14] for f in b.drain(100, SOON)] == list(range(100))


def test_frames_to_an_unplugged_port_are_counted(hub) -> None:
    with ShmPort(hub.socket, 1) as a:
        a.send(frame(9))
        eventually(lambda: hub.stats().no_port == 1, "the frame without a port is counted")


def garbage(kind: str, port: ShmPort) -> None:
    ring = port.layout.to_switch
    if kind == "head far ahead":
        ring.head = 0x80000000
    elif kind == "head behind":
        ring.head = ring.head - 1
    elif kind == "tail of the other ring":
        port.layout.to_host.tail = 12345
        port.send(echo_frame(1))
    elif kind == "unexpected message":
        port._socket.send(b"hello again")
    port.ring_bell()


@pytest.mark.parametrize(
    "kind", ["head far ahead", "head behind", "tail of the other ring", "unexpected message"]
)
def test_broken_ring_unplugs_its_port_only(hub, kind: str) -> None:
    with ShmPort(hub.socket, 2) as b, ShmPort(hub.socket, 3) as c:
        bad = ShmPort(hub.socket, 1)
        garbage(kind, bad)
        assert bad._socket.recv(1) == b""  # the switch hung up
        bad.close()
        b.send(frame(3, b"still here"))
        assert c.receive(SOON) == frame(3, b"still here")
        with ShmPort(hub.socket, 1) as again:
            again.send(echo_frame(1))
            assert again.receive(SOON)


@pytest.mark.parametrize("length", [0, 1, 13, shm_client.MAX_FRAME + 1, 0x7FFFFFFF, 0xFFFFFFFF])
def test_impossible_length_is_skipped(hub, length: int) -> None:
    with ShmPort(hub.socket, 1) as a:
        ring = a.layout.to_switch
        ring.slots[ring.head % shm_client.SLOTS].length = length
        ring.head += 1
        a.send(echo_frame(1, b"next"))
        assert a.receive(SOON) == echo_frame(1, b"next")
        assert hub.port_stats(1).rx_invalid == 1


def test_scribbling_over_everything(hub) -> None:
    """All of the shared memory is filled with noise again and again while traffic passes elsewhere."""
    with ShmPort(hub.socket, 2) as b, ShmPort(hub.socket, 3) as c:
        for turn in range(40):
            try:
                bad = ShmPort(hub.socket, 1)
            except shm_client.ShmPortError:
                continue  # the switch has not yet unplugged the one before
            size = ctypes.sizeof(shm_client.Layout)
            noise = bytes((turn * 31 + i * 7) & 0xFF for i in range(251))
            view = memoryview(bad._memory)
            view[:] = (noise * (size // len(noise) + 1))[:size]
            view.release()
            os.eventfd_write(bad._bells[0], 1)
            b.send(frame(3, bytes([turn])))
            assert c.receive(SOON) == frame(3, bytes([turn]))
            bad.close()


def test_blocking_bell_does_not_block_the_switch(hub) -> None:
    """The bell's flags are shared: a client makes it blocking and fills it up."""
    with ShmPort(hub.socket, 2) as b, ShmPort(hub.socket, 3) as c:
        bad = ShmPort(hub.socket, 1)
        os.set_blocking(bad._bells[1], True)
        os.eventfd_write(bad._bells[1], 2**64 - 2)
        bad.layout.to_host.sleeping = 1
        b.send(frame(1, b"would block"))
        b.send(frame(3, b"after"))
        assert c.receive(SOON) == frame(3, b"after")
        bad.close()


def test_full_bell_does_not_block_the_switch(hub) -> None:
    with ShmPort(hub.socket, 2) as b, ShmPort(hub.socket, 1) as a:
        os.eventfd_write(a._bells[1], 2**64 - 2)
        a.layout.to_host.sleeping = 1
        b.send(frame(1, b"x"))
        assert a.receive(SOON) == frame(1, b"x")


def test_memory_cannot_be_shrunk(hub) -> None:
    """A client that truncates its memory would kill the switch with SIGBUS."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        peer.settimeout(SOON)
        peer.connect(unix_address(hub.socket))
        peer.send(struct.pack("=IIII", shm_client.MAGIC, shm_client.VERSION, 1, 0))
        _, fds, _, _ = socket.recv_fds(peer, 4096, 3)
        try:
            for size in (0, 1 << 30):
                with pytest.raises(PermissionError):
                    os.ftruncate(fds[0], size)
        finally:
            for fd in fds:
                os.close(fd)


CLIENT = """
import sys
from netreduce.softswitch.shm_client import ShmPort
port = ShmPort(sys.argv[1], 1)
print("ready", flush=True)
while True:
    port.send(bytes.fromhex("020000000002020000000001" "88b5") + bytes(1000))
    port.poll()
"""


def test_killed_client_frees_its_port(hub) -> None:
    """kill -9 in the middle of sending, several times over."""
    with ShmPort(hub.socket, 2) as b:
        for _ in range(3):
            client = subprocess.Popen([sys.executable, "-c", CLIENT, hub.socket], stdout=subprocess.PIPE)
            try:
                assert client.stdout.readline() == b"ready\n"
                assert b.receive(SOON)
            finally:
                client.send_signal(signal.SIGKILL)
                client.wait()
                client.stdout.close()
            eventually(lambda: hub.port_stats(1).kind is PortKind.NONE, "the dead client's port is free")
            while b.poll():
                pass
        with ShmPort(hub.socket, 1) as a:
            a.send(frame(2, b"alive"))
            assert b.receive(SOON) == frame(2, b"alive")


def test_nobody_starves(hub) -> None:
    """A port that always has frames waiting does not keep another one, or control calls, from their turn."""
    stop = threading.Event()

    def flood(port: ShmPort) -> None:
        while not stop.is_set():
            port.send(frame(9, bytes(64)))

    with ShmPort(hub.socket, 1) as busy, ShmPort(hub.socket, 2) as b, ShmPort(hub.socket, 3) as c:
        thread = threading.Thread(target=flood, args=(busy,))
        thread.start()
        try:
            for i in range(50):
                b.send(frame(3, bytes([i])))
                assert c.receive(SOON) == frame(3, bytes([i]))
                assert len(hub.instance.counter_read(0, 0, 8)) == 8
        finally:
            stop.set()
            thread.join()
        assert hub.instance.counter_read(0, 2, 1) == [(50, 50 * 15)]


def test_idle_switch_sleeps(hub) -> None:
    """Without traffic the packet thread uses no processor time."""
    with ShmPort(hub.socket, 1) as a:
        a.send(echo_frame(1))
        assert a.receive(SOON)
        eventually(lambda: a.layout.to_switch.sleeping == 1, "the switch went to sleep")
        sleeps = hub.stats().sleeps
        a.send(echo_frame(1))
        assert a.receive(SOON)  # and it wakes up again
        eventually(lambda: hub.stats().sleeps > sleeps, "it sleeps again")


def test_pipeline_swap_under_traffic(hub) -> None:
    from hub import hub_library

    with ShmPort(hub.socket, 1) as a, ShmPort(hub.socket, 2) as b:
        for turn in range(20):
            a.send(frame(2, bytes([turn])))
            assert b.receive(SOON) == frame(2, bytes([turn]))
            fresh = hub.load(hub_library())
            hub.attach(fresh)
            hub.instance.unload()
            hub.instance = fresh
        hub.attach(None)
        a.send(frame(2))
        eventually(lambda: hub.stats().no_program == 1, "a frame without a program is counted")


def test_taken_socket_is_refused_with_a_sentence(hub) -> None:
    with SwitchCore() as other, pytest.raises(SwitchError, match=r"in use.*choose another name"):
        other.listen(hub.socket)


def test_socket_file_is_replaced_when_stale_and_removed_at_the_end(tmp_path) -> None:
    path = tmp_path / "switch.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as killed:
        killed.bind(str(path))  # as a killed switch leaves it
    with SwitchCore() as core:
        core.allow_shm_ports(1, 1)
        core.listen(str(path))
        core.start()
        with ShmPort(str(path), 1), SwitchCore() as other, pytest.raises(SwitchError, match="in use"):
            other.listen(str(path))
        assert path.exists()
    assert not path.exists()


def test_clients_notice_the_end_of_the_switch() -> None:
    with running_hub() as core:
        a = ShmPort(core.socket, 1)
    with pytest.raises(ConnectionError):
        a.receive(SOON)
    a.close()


def test_settings_out_of_range() -> None:
    with SwitchCore() as core:
        with pytest.raises(SwitchError):
            core.allow_shm_ports(5, 511)
        with pytest.raises(SwitchError, match="1 to 107 characters"):
            core.listen("@")
        with pytest.raises(SwitchError, match="no network interface"):
            core.remove_interface(3)
    with pytest.raises(SwitchError, match="CPU port 511"):
        SwitchCore(cpu_port=511)
    with pytest.raises(SwitchError, match="closed"):
        core.start()


def test_other_file_is_not_a_pipeline(tmp_path) -> None:
    from netreduce.softswitch.build import build_core

    with SwitchCore() as core:
        with pytest.raises(SwitchError, match="cannot load"):
            core.load(tmp_path / "absent.so")
        with pytest.raises(SwitchError, match="not a compiled pipeline"):
            core.load(build_core())


def test_cpu_port() -> None:
    with running_hub(cpu_port=500) as core, ShmPort(core.socket, 1) as a:
        core.packet_out(frame(1, b"out"))
        assert a.receive(SOON) == frame(1, b"out")
        assert core.packet_in(0) is None
    with running_hub() as core, pytest.raises(SwitchError, match="--cpu-port"):
        core.packet_out(frame(1))
