"""Which address a rank uses over UDP, and how large its packets may be."""

from __future__ import annotations

import socket

import psutil

from netreduce.host_agent.options import HOST_INTERFACE, HOST_IP, Options


class AddressError(Exception):
    """No usable IPv4 address; says what to set."""


def udp_address(options: Options) -> str:
    """This rank's IPv4 address, by the precedence of :attr:`Options.host_ip`.

    Raises:
        AddressError: the interface does not exist or has no IPv4 address, or no route leads to the
            controller.
    """
    if options.host_ip is not None:
        return options.host_ip
    if options.host_interface is not None:
        return _address_of(options.host_interface)
    host, _, port = options.controller.rpartition(":")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            # Connecting a datagram socket sends nothing; it only asks the routing table.
            probe.connect((host, int(port)))
            return probe.getsockname()[0]
    except OSError as error:
        raise AddressError(
            f"no route to the controller at {options.controller} ({error}); set {HOST_IP}"
        ) from error


def path_mtu(ip: str) -> int:
    """MTU in bytes of the interface that has ``ip``; 0: unknown."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(a.family is socket.AF_INET and a.address == ip for a in addresses):
            return psutil.net_if_stats()[name].mtu
    return 0


def _address_of(interface: str) -> str:
    interfaces = psutil.net_if_addrs()
    if interface not in interfaces:
        choices = ", ".join(sorted(interfaces))
        raise AddressError(f"{HOST_INTERFACE}={interface!r} does not exist here; choose one of {choices}")
    for address in interfaces[interface]:
        if address.family is socket.AF_INET:
            return address.address
    raise AddressError(f"{HOST_INTERFACE}={interface!r} has no IPv4 address")
