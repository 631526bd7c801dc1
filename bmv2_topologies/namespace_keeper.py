"""Keeps one unnamed network namespace alive and sets up the interface that is moved into it.

Run by `netreduce.topologies.namespaces` as ``python -m …namespace_keeper SETTINGS``: prints ``namespace``
when it has one, waits for a line on stdin (the link was moved), prints ``configured``, then sleeps until
its stdin closes.
"""

import json
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyroute2 import Ethtool, IPRoute

from netreduce.topologies.kernel_namespaces import unshare_network

SETUP_TIMEOUT_S = 30
OFFLOADS = (
    "tx-checksum-ip-generic",
    "tx-scatter-gather",
    "tx-tcp-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp6-segmentation",
    "tx-udp-segmentation",
    "tx-generic-segmentation",
    "rx-gro",
)
"""Packet sockets would otherwise see unfinished checksums and frames larger than the MTU."""


def configure(routes: IPRoute, settings: dict[str, Any]) -> None:
    """Names, addresses and raises one interface, with static neighbours and without offloads.

    `settings`: interface, name, mac, ip, prefix (bits), mtu (bytes), neighbours ([ip, mac] pairs).
    """
    index = routes.link_lookup(ifname=settings["interface"])[0]
    routes.link("set", index=index, ifname=settings["name"], address=settings["mac"], mtu=settings["mtu"])
    disable_ipv6(settings["name"])
    switch_off_offloads(settings["name"])
    routes.addr("add", index=index, address=settings["ip"], prefixlen=settings["prefix"])
    routes.link("set", index=index, state="up")
    for ip, mac in settings["neighbours"]:
        routes.neigh("replace", dst=ip, lladdr=mac, ifindex=index, state=0x80)  # NUD_PERMANENT


def disable_ipv6(interface: str) -> None:
    """Keeps router solicitations and the like off the switch's ports."""
    with suppress(FileNotFoundError):  # a kernel without IPv6
        Path(f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6").write_text("1")


def switch_off_offloads(interface: str) -> None:
    """Turns off what `OFFLOADS` lists, as far as the interface has it."""
    with Ethtool() as ethtool:
        features = ethtool.get_features(interface)
        changed = False
        for name in OFFLOADS:
            feature = features.features.get(name)
            if feature is not None and feature.enable:
                feature.enable = False
                changed = True
        if changed:
            ethtool.set_features(interface, features)


def main() -> None:
    signal.alarm(SETUP_TIMEOUT_S)  # a launcher that died must not leave a keeper waiting
    settings = json.loads(sys.argv[1])
    try:
        unshare_network()
    except OSError as error:
        print(error.strerror, flush=True)
        sys.exit(1)
    print("namespace", flush=True)
    if not sys.stdin.readline():
        sys.exit(0)
    with IPRoute() as routes:
        routes.link("set", index=routes.link_lookup(ifname="lo")[0], state="up")
        configure(routes, settings)
    print("configured", flush=True)
    signal.alarm(0)
    sys.stdin.read()


if __name__ == "__main__":
    main()
