"""A subnet of its own for every run, so that several at the same time do not meet."""

import errno
import ipaddress
import socket
from collections.abc import Iterable

from pyroute2 import IPRoute

SUBNETS = ipaddress.IPv4Network("198.18.0.0/15")
"""Kept for tests of network devices (RFC 2544), so hardly ever in use on a machine's own networks."""
PREFIX_BITS = 24


def routed_networks(routes: IPRoute) -> list[ipaddress.IPv4Network]:
    """Networks that this namespace knows a way to; the default route apart."""
    networks = []
    for route in routes.get_routes(family=socket.AF_INET):
        destination = route.get("dst")
        if destination and route["dst_len"]:
            networks.append(ipaddress.IPv4Network(f"{destination}/{route['dst_len']}", strict=False))
    return networks


def claim_subnet(
    taken: Iterable[ipaddress.IPv4Network],
) -> tuple[ipaddress.IPv4Network, socket.socket]:
    """A subnet that overlaps no network in `taken`, and that no other run has claimed.

    The claim is an abstract socket's name: of this network namespace, and free again when the socket is
    closed, whatever way the process ends.

    Raises:
        OSError: there is none.
    """
    taken = list(taken)
    for subnet in SUBNETS.subnets(new_prefix=PREFIX_BITS):
        if any(subnet.overlaps(network) for network in taken):
            continue
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0netreduce-subnet-{subnet}")
        except OSError as error:
            claim.close()
            if error.errno != errno.EADDRINUSE:
                raise
            continue
        return subnet, claim
    raise OSError(errno.EADDRINUSE, f"every subnet of {SUBNETS} is in use on this machine")
