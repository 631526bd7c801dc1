"""Kernel sockets: binding, adoption of descriptors, and what the network says about lost packets."""

from __future__ import annotations

import socket
from datetime import timedelta

import numpy as np
import pytest
from emulated_switch import EmulatedUdpSwitch

from netreduce.host_agent._datapath import (
    AddressInUseError,
    Communicator,
    Endpoint,
    TimeoutError,
    UdpSocket,
    WireError,
    bind_udp,
)
from netreduce.p4.wire import UDP_PORT_FIRST


def test_bind_takes_the_next_free_port() -> None:
    first = bind_udp("127.0.0.1", 23050, 8)
    second = bind_udp("127.0.0.1", 23050, 8)
    assert 23050 <= first.port < second.port < 23058


def test_bind_says_when_all_ports_are_taken() -> None:
    taken = bind_udp("127.0.0.1", 23060, 1)
    with pytest.raises(AddressInUseError, match=r"127\.0\.0\.1: all UDP ports 23060-23060 are in use"):
        bind_udp("127.0.0.1", 23060, 1)
    with pytest.raises(AddressInUseError, match=r"bind to 127\.0\.0\.1:23060: Address already in use"):
        UdpSocket("127.0.0.1", taken.port)


def test_bind_to_a_foreign_address_is_another_error() -> None:
    with pytest.raises(WireError, match=r"bind to 192\.0\.2\.1:23070: Cannot assign") as caught:
        UdpSocket("192.0.2.1", 23070)
    assert not isinstance(caught.value, AddressInUseError)


def test_socket_options() -> None:
    udp = bind_udp("127.0.0.1", 23080, 8)
    with socket.socket(fileno=udp.detach()) as s:
        IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2
        assert s.getsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER) == IP_PMTUDISC_DO, "DF is not set"
        # 64 packets of the largest size, each in a kernel buffer of twice that.
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= min(64 * 2 * 4200, 2 * rmem_max())


def rmem_max() -> int:
    with open("/proc/sys/net/core/rmem_max") as f:
        return int(f.read())


def test_nobody_listening_at_the_successor_is_part_of_the_diagnosis() -> None:
    closed = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    closed.bind(("127.0.0.1", 0))
    ip, port = closed.getsockname()
    closed.close()
    with EmulatedUdpSwitch(2) as switch:
        successor = Endpoint(mac="02:00:00:00:00:01", ip=ip, udp_port=port)
        communicator = switch.communicator(0, successor=successor)
        with pytest.raises(
            TimeoutError, match=rf'reported "Connection refused" .*for packets to {ip}:{port}'
        ):
            communicator.probe(timedelta(milliseconds=300))


def test_results_from_another_address_are_ignored() -> None:
    with EmulatedUdpSwitch(2) as switch:
        other = Endpoint(mac="02:00:00:00:00:01", ip="127.0.0.9", udp_port=UDP_PORT_FIRST)
        communicator = switch.communicator(0, predecessor=other)
        with pytest.raises(TimeoutError, match="no result came at all"):
            communicator.all_reduce(np.ones(1, np.int32), timeout=timedelta(milliseconds=200))


def test_the_socket_must_be_the_one_that_joined() -> None:
    with EmulatedUdpSwitch(2) as switch, pytest.raises(ValueError, match="another port than is bound"):
        Communicator.over_udp(switch.config(0), bind_udp("127.0.0.1", 23090, 8))
