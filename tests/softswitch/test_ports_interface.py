"""Ports on network interfaces: veth pairs in a network namespace of the test's own."""

import ctypes
import fcntl
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hub import flood_frame, frame, running_hub
from pyroute2 import IPRoute

from netreduce.softswitch.core import PortKind
from netreduce.softswitch.core_library import SwitchError
from netreduce.softswitch.shm_client import ShmPort

pytestmark = pytest.mark.root

SOON = 10.0
CLONE_NEWNET = 0x40000000
ETH_P_ALL = 3
SIOCETHTOOL = 0x8946
ETHTOOL_GTSO, ETHTOOL_GGSO, ETHTOOL_GGRO = 0x1E, 0x23, 0x2B


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen within {SOON} s: {what}"
        time.sleep(0.005)


@pytest.fixture
def namespace() -> Iterator[IPRoute]:
    """The test's thread in a fresh network namespace, which vanishes with the last of its sockets."""
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        assert libc.unshare(CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        with IPRoute() as links:
            yield links
    finally:
        assert libc.setns(home, CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        os.close(home)


def add_pair(links: IPRoute, number: int, mtu: int = 1500) -> None:
    """Interfaces switchN and hostN, up."""
    ends = f"switch{number}", f"host{number}"
    links.link("add", ifname=ends[0], kind="veth", peer=ends[1])
    for end in ends:
        index = links.link_lookup(ifname=end)[0]
        path = f"/proc/sys/net/ipv6/conf/{end}/disable_ipv6"
        if os.path.exists(path):
            with open(path, "w") as file:
                file.write("1")
        links.link("set", index=index, state="up", mtu=mtu)


def set_link(links: IPRoute, name: str, **how) -> None:
    links.link("set", index=links.link_lookup(ifname=name)[0], **how)


def offload(name: str, command: int) -> int:
    """What ethtool says of one offload."""
    value = ctypes.create_string_buffer(struct.pack("=II", command, 0))
    request = struct.pack("16sP", name.encode(), ctypes.addressof(value)) + bytes(16)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCETHTOOL, request)
    return struct.unpack("=II", value.raw[:8])[1]


class Wire:
    """A raw socket at the host end of a pair."""

    def __init__(self, number: int):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.setsockopt(263, 23, 1)  # SOL_PACKET, PACKET_IGNORE_OUTGOING
        self.socket.bind((f"host{number}", ETH_P_ALL))
        self.socket.settimeout(SOON)

    def send(self, data: bytes) -> None:
        self.socket.send(data)

    def receive(self) -> bytes:
        return self.socket.recv(65536)

    def silent(self) -> bool:
        self.socket.setblocking(False)
        try:
            self.socket.recv(65536)
        except BlockingIOError:
            return True
        finally:
            self.socket.settimeout(SOON)
        return False

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_) -> None:
        self.socket.close()


def test_frames_pass_between_interfaces_and_shared_memory(namespace) -> None:
    add_pair(namespace, 1)
    add_pair(namespace, 2)
    with running_hub(flood=(1, 2, 3)) as hub, Wire(1) as one, Wire(2) as two, ShmPort(hub.socket, 3) as three:
        hub.add_interface(1, "switch1")
        hub.add_interface(2, "switch2")
        stats = hub.port_stats(1)
        assert (stats.kind, stats.up) == (PortKind.INTERFACE, True)
        one.send(frame(2, b"hello" * 20))
        assert two.receive() == frame(2, b"hello" * 20)
        two.send(flood_frame(b"everybody" * 9))
        assert one.receive() == flood_frame(b"everybody" * 9)
        assert three.receive(SOON) == flood_frame(b"everybody" * 9)
        three.send(frame(1, b"from memory" * 9))
        assert one.receive() == frame(1, b"from memory" * 9)
        assert two.silent()  # neither its own flood, nor what left through other ports
        stats = hub.port_stats(1)
        assert (stats.rx_frames, stats.tx_frames) == (1, 2)


def test_many_frames_in_order(namespace) -> None:
    add_pair(namespace, 1)
    add_pair(namespace, 2)
    count = 2000
    with running_hub() as hub, Wire(1) as one, Wire(2) as two:
        hub.add_interface(1, "switch1")
        hub.add_interface(2, "switch2")
        two.socket.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE
        received = []
        for first in range(0, count, 100):
            for number in range(first, first + 100):
                one.send(frame(2, struct.pack("!I", number) + bytes(1400)))
            received += [struct.unpack("!I", two.receive()[14:18])[0] for _ in range(100)]
        assert received == list(range(count))


def test_offloads_of_the_switch_end_are_off(namespace) -> None:
    add_pair(namespace, 1)
    assert offload("switch1", ETHTOOL_GTSO) == 1
    with running_hub() as hub:
        hub.add_interface(1, "switch1")
        assert [offload("switch1", c) for c in (ETHTOOL_GTSO, ETHTOOL_GGSO, ETHTOOL_GGRO)] == [0, 0, 0]


def test_vlan_tags_come_through(namespace) -> None:
    """The kernel takes the outer tag off received frames; the program must see it in its place."""
    add_pair(namespace, 1)
    with running_hub() as hub, Wire(1) as one, ShmPort(hub.socket, 2) as two:
        hub.add_interface(1, "switch1")
        for tags in (b"\x81\x00\x60\x05", b"\x88\xa8\x20\x07" + b"\x81\x00\x00\x08", b"\x81\x00\x00\x00"):
            untagged = frame(2, bytes(range(64)))
            tagged = untagged[:12] + tags + untagged[12:]
            one.send(tagged)
            assert two.receive(SOON) == tagged
            two.send(tagged[:5] + b"\x01" + tagged[6:])
            got = one.receive()
            assert got[:5] + b"\x02" + got[6:] in (tagged, untagged, tagged[:12] + tags[4:] + untagged[12:])


def checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@pytest.mark.parametrize("size", [100, 101])
def test_unfinished_checksums_are_finished(namespace, size: int) -> None:
    """A host that leaves the UDP checksum to its (veth) device: the program gets a complete one."""
    add_pair(namespace, 1)
    set_link(namespace, "host1", address="02:00:00:00:00:99")
    index = namespace.link_lookup(ifname="host1")[0]
    namespace.addr("add", index=index, address="10.9.0.1", prefixlen=24)
    namespace.neigh("add", dst="10.9.0.2", lladdr="02:00:00:00:00:02", ifindex=index, state=0x80)
    payload = bytes(i * 7 & 0xFF for i in range(size))
    with running_hub() as hub, ShmPort(hub.socket, 2) as two, socket.socket(type=socket.SOCK_DGRAM) as udp:
        hub.add_interface(1, "switch1")
        udp.sendto(payload, ("10.9.0.2", 4000))
        got = two.receive(SOON)
    assert got is not None
    datagram = got[34:]
    assert datagram[8:] == payload
    assert struct.unpack("!H", datagram[6:8])[0] != 0
    pseudo = got[26:34] + struct.pack("!HH", 17, len(datagram))
    assert checksum(pseudo + datagram + bytes(len(datagram) % 2)) == 0


def test_super_frames_are_refused_not_cut(namespace) -> None:
    """TCP with segmentation offload at the host end sends more than one frame's worth at once."""
    add_pair(namespace, 1)
    index = namespace.link_lookup(ifname="host1")[0]
    namespace.addr("add", index=index, address="10.9.0.1", prefixlen=24)
    namespace.neigh("add", dst="10.9.0.2", lladdr="02:00:00:00:00:02", ifindex=index, state=0x80)
    with running_hub() as hub, ShmPort(hub.socket, 2) as two, socket.socket(type=socket.SOCK_DGRAM) as udp:
        hub.add_interface(1, "switch1")
        udp.setsockopt(socket.IPPROTO_UDP, 103, 1000)  # UDP_SEGMENT
        udp.sendto(bytes(10000), ("10.9.0.2", 4000))
        eventually(lambda: hub.port_stats(1).rx_invalid == 1, "the super-frame is counted")
        udp.setsockopt(socket.IPPROTO_UDP, 103, 0)
        udp.sendto(b"ordinary", ("10.9.0.2", 4000))
        got = two.receive(SOON)
        assert got is not None
        assert got.endswith(b"ordinary")


def test_frames_too_long_for_the_link_are_dropped_and_counted(namespace) -> None:
    add_pair(namespace, 1, mtu=600)
    with running_hub() as hub, Wire(1) as one, ShmPort(hub.socket, 2) as two:
        hub.add_interface(1, "switch1")
        two.send(frame(1, bytes(2000)))
        two.send(frame(1, bytes(500)))
        assert one.receive() == frame(1, bytes(500))
        assert hub.port_stats(1).tx_dropped == 1


def test_interface_down_and_up_again(namespace) -> None:
    add_pair(namespace, 1)
    with running_hub() as hub, Wire(1) as one, ShmPort(hub.socket, 2) as two:
        hub.add_interface(1, "switch1")
        for _ in range(2):
            set_link(namespace, "switch1", state="down")
            eventually(lambda: not hub.port_stats(1).up, "the port is down")
            before = hub.port_stats(1).tx_dropped
            two.send(frame(1, bytes(50)))
            eventually(lambda before=before: hub.port_stats(1).tx_dropped == before + 1, "the frame is lost")
            set_link(namespace, "switch1", state="up")
            eventually(lambda: hub.port_stats(1).up, "the port is up")
            two.send(frame(1, b"again" * 10))
            assert one.receive() == frame(1, b"again" * 10)
            one.send(frame(2, b"and back" * 10))
            assert two.receive(SOON) == frame(2, b"and back" * 10)


def test_interface_vanishes_and_returns(namespace) -> None:
    add_pair(namespace, 1)
    with running_hub() as hub, ShmPort(hub.socket, 2) as two:
        hub.add_interface(1, "switch1")
        for _ in range(2):
            namespace.link("del", index=namespace.link_lookup(ifname="switch1")[0])
            eventually(lambda: not hub.port_stats(1).up, "the port is down")
            two.send(frame(1, bytes(50)))
            add_pair(namespace, 1)
            eventually(lambda: hub.port_stats(1).up, "the port is back")
            with Wire(1) as one:
                two.send(frame(1, b"again" * 10))
                assert one.receive() == frame(1, b"again" * 10)
                one.send(frame(2, b"and back" * 10))
                assert two.receive(SOON) == frame(2, b"and back" * 10)


def test_idle_with_interfaces_uses_no_processor_time(namespace) -> None:
    add_pair(namespace, 1)
    with running_hub() as hub, Wire(1) as one, ShmPort(hub.socket, 2) as two:
        hub.add_interface(1, "switch1")
        one.send(frame(2, bytes(50)))
        assert two.receive(SOON)
        eventually(lambda: two.layout.to_switch.sleeping == 1, "the switch went to sleep")
        set_link(namespace, "switch1", state="down")  # an error waits at the socket
        eventually(lambda: not hub.port_stats(1).up, "the port is down")
        eventually(lambda: two.layout.to_switch.sleeping == 1, "the switch sleeps again")


def test_removed_interface_frees_its_port(namespace) -> None:
    add_pair(namespace, 1)
    with running_hub() as hub:
        hub.add_interface(1, "switch1")
        with pytest.raises(SwitchError, match="port 1 is in use"):
            hub.add_interface(1, "switch1")
        hub.remove_interface(1)
        assert hub.port_stats(1).kind is PortKind.NONE
        with ShmPort(hub.socket, 1), pytest.raises(SwitchError, match="port 1 is in use"):
            hub.add_interface(1, "switch1")


@pytest.mark.parametrize(
    ("port", "name", "sentence"),
    [
        (1, "absent0", "port 1: there is no interface absent0 in this network namespace"),
        (1, "much-too-long-a-name", "is not an interface name"),
        (511, "lo", "port numbers run from 0 to 510"),
    ],
)
def test_refusals(namespace, port: int, name: str, sentence: str) -> None:
    with running_hub() as hub, pytest.raises(SwitchError, match=sentence):
        hub.add_interface(port, name)


def test_without_the_capability_the_error_says_what_is_needed(namespace) -> None:
    add_pair(namespace, 1)
    outcome: list[str] = []

    def unprivileged() -> None:
        """Drops CAP_NET_RAW of this thread alone."""
        libc = ctypes.CDLL(None, use_errno=True)
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)
        data = (ctypes.c_uint32 * 6)()
        assert libc.capset(header, data) == 0
        with running_hub() as hub:
            try:
                hub.add_interface(1, "switch1")
            except SwitchError as error:
                outcome.append(str(error))

    thread = threading.Thread(target=unprivileged)
    thread.start()
    thread.join()
    assert outcome == ["port 1: opening interface switch1 needs root or the capability CAP_NET_RAW"]
