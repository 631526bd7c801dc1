"""Which address a rank uses over UDP."""

import psutil
import pytest

from netreduce.host_agent.host_address import AddressError, path_mtu, udp_address
from netreduce.host_agent.options import Options


def test_precedence() -> None:
    controller = "127.0.0.1:50100"
    assert udp_address(Options(controller, host_ip="10.1.2.3", host_interface="lo")) == "10.1.2.3"
    assert udp_address(Options("10.0.0.1:1", host_interface="lo")) == "127.0.0.1"
    assert udp_address(Options(controller)) == "127.0.0.1"


def test_an_interface_that_does_not_exist_names_those_that_do() -> None:
    with pytest.raises(AddressError, match=r"'nope0' does not exist here; choose one of .*\blo\b"):
        udp_address(Options("127.0.0.1:1", host_interface="nope0"))


def test_a_controller_without_an_address() -> None:
    with pytest.raises(AddressError, match="set NETREDUCE_HOST_IP"):
        udp_address(Options("no.such.host.invalid:1"))


def test_mtu_is_the_interfaces() -> None:
    assert path_mtu("127.0.0.1") == psutil.net_if_stats()["lo"].mtu
    assert path_mtu("203.0.113.9") == 0
