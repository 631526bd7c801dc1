"""A network namespace per worker, each with one link into the embedded switch (needs root).

The namespaces have no name and no file: each belongs to the processes inside it and vanishes with the
last of them, taking its link along, even if everything is killed with SIGKILL.
"""

import errno
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import TracebackType

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from netreduce.p4.wire import (
    BLOCK_BYTES,
    IPV4_HEADER_BYTES,
    MAX_BLOCKS,
    NR_HEADER_BYTES,
    UDP_HEADER_BYTES,
)
from netreduce.topologies.embedded import HostLink
from netreduce.topologies.kernel_namespaces import enter_network, unshare_network
from netreduce.topologies.namespace_keeper import configure, disable_ipv6
from netreduce.topologies.processes import die_with_parent
from netreduce.topologies.subnets import PREFIX_BITS, claim_subnet, routed_networks

MTU = IPV4_HEADER_BYTES + UDP_HEADER_BYTES + NR_HEADER_BYTES + MAX_BLOCKS * BLOCK_BYTES
"""The largest packet's length."""
CONTROLLER_HOST = "controller"


@contextmanager
def own_network() -> Iterator[None]:
    """Moves this thread, and the threads and processes that it starts, into a new network namespace for as
    long as the block runs.

    Whatever is made there goes with the last of those processes, however they end.

    Raises:
        OSError: this process may not make one.
    """
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        unshare_network()
        try:
            with IPRoute() as routes:
                routes.link("set", index=routes.link_lookup(ifname="lo")[0], state="up")
            yield
        finally:
            enter_network(home)
    finally:
        os.close(home)


def host_mac(number: int) -> str:
    """Locally administered MAC address of host `number`."""
    return f"02:4e:52:00:{number >> 8:02x}:{number & 255:02x}"


@dataclass(frozen=True)
class NamespaceHost:
    """One worker's host."""

    name: str
    ip: str
    pid: int
    """The process that keeps the namespace alive; ``/proc/<pid>/ns/net`` is the namespace."""
    environment: dict[str, str] = field(default_factory=dict)
    """What programs inside need to use the host's interface."""


class HostNamespaces:
    """Context manager: `count` hosts and this namespace, each linked to a switch port by a veth pair.

    Attributes (set on entry):
        hosts: the workers' hosts.
        links: what the switch has to open: ports 1 … count for hosts, count + 1 for this namespace.
        controller_ip: this namespace's address on that network.

    Each of several at the same time has a subnet of its own.

    Raises:
        OSError: on entry, when namespaces or links cannot be made, or no subnet is free; nothing is left
            behind.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._tag = secrets.token_hex(3)
        self._cleanup = ExitStack()
        self.hosts: list[NamespaceHost] = []
        self.links: list[HostLink] = []
        self.controller_ip = ""

    def __enter__(self) -> "HostNamespaces":
        try:
            with IPRoute() as routes:
                self._subnet, claim = claim_subnet(routed_networks(routes))
                self._cleanup.callback(claim.close)
                self.controller_ip = self._ip(0)
                for number in range(1, self._count + 1):
                    self._add_host(routes, number)
                self._add_controller_link(routes, self._count + 1)
        except NetlinkError as error:
            self._cleanup.close()
            raise OSError(error.code, f"the workers' network namespaces cannot be set up: {error}") from error
        except BaseException:
            self._cleanup.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    def _ip(self, number: int) -> str:
        """IPv4 address of host `number` (0: the controller's)."""
        return str(self._subnet[number + 1])

    def _neighbours(self, own: int) -> list[tuple[str, str]]:
        return [(self._ip(n), host_mac(n)) for n in range(self._count + 1) if n != own]

    def _link(self, routes: IPRoute, number: int) -> tuple[str, str]:
        """Makes a veth pair; returns (switch end, host end)."""
        switch_end, host_end = f"nr{self._tag}s{number}", f"nr{self._tag}h{number}"
        routes.link("add", ifname=switch_end, kind="veth", peer={"ifname": host_end})
        self._cleanup.callback(_delete_link, switch_end)
        index = routes.link_lookup(ifname=switch_end)[0]
        routes.link("set", index=index, mtu=MTU, state="up")
        disable_ipv6(switch_end)
        return switch_end, host_end

    def _add_host(self, routes: IPRoute, number: int) -> None:
        name = f"h{number}"
        switch_end, host_end = self._link(routes, number)
        settings = {
            "interface": host_end,
            "name": "eth0",
            "mac": host_mac(number),
            "ip": self._ip(number),
            "prefix": PREFIX_BITS,
            "mtu": MTU,
            "neighbours": self._neighbours(number),
        }
        keeper = subprocess.Popen(
            [sys.executable, "-m", "netreduce.topologies.namespace_keeper", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=die_with_parent(),
        )
        self._cleanup.callback(_end_keeper, keeper)
        _expect(keeper, "namespace", name)
        routes.link("set", index=routes.link_lookup(ifname=host_end)[0], net_ns_pid=keeper.pid)
        _tell(keeper)
        _expect(keeper, "configured", name)
        self.hosts.append(
            NamespaceHost(
                name=name,
                ip=self._ip(number),
                pid=keeper.pid,
                environment={"GLOO_SOCKET_IFNAME": "eth0", "NETREDUCE_HOST_IP": self._ip(number)},
            )
        )
        self.links.append(HostLink(name, number, switch_end, host_mac(number), self._ip(number)))

    def _add_controller_link(self, routes: IPRoute, port: int) -> None:
        switch_end, host_end = self._link(routes, port)
        configure(
            routes,
            {
                "interface": host_end,
                "name": host_end,
                "mac": host_mac(0),
                "ip": self._ip(0),
                "prefix": PREFIX_BITS,
                "mtu": MTU,
                "neighbours": self._neighbours(0),
            },
        )
        self.links.append(HostLink(CONTROLLER_HOST, port, switch_end, host_mac(0), self._ip(0)))


def _expect(keeper: subprocess.Popen, word: str, name: str) -> None:
    """Waits for the keeper's line `word`; its exit ends that too, and it has an alarm."""
    assert keeper.stdout is not None
    line = keeper.stdout.readline().strip()
    if line != word:
        raise OSError(f"network namespace of host {name}: expected {word!r}, got {line or 'its exit'!r}")


def _tell(keeper: subprocess.Popen) -> None:
    assert keeper.stdin is not None
    keeper.stdin.write("link moved\n")
    keeper.stdin.flush()


def _end_keeper(keeper: subprocess.Popen) -> None:
    keeper.kill()
    keeper.wait()
    for stream in (keeper.stdin, keeper.stdout):
        if stream is not None:
            stream.close()


def _delete_link(name: str) -> None:
    """Deletes a link if it is still there; the peer goes along.

    The kernel may be about to delete it, since the namespace of its peer has gone.
    """
    with IPRoute() as routes:
        for index in routes.link_lookup(ifname=name):
            try:
                routes.link("del", index=index)
            except NetlinkError as error:
                if error.code != errno.ENODEV:
                    raise
