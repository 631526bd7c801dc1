"""What a user can set: environment variables of the host agent, read once per process group."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

CONTROLLER = "NETREDUCE_CONTROLLER"
TRANSPORT = "NETREDUCE_TRANSPORT"
PRECISION = "NETREDUCE_PRECISION"
HOST_IP = "NETREDUCE_HOST_IP"
HOST_INTERFACE = "NETREDUCE_HOST_INTERFACE"
JOB_NAME = "NETREDUCE_JOB_NAME"
JOIN_TIMEOUT = "NETREDUCE_JOIN_TIMEOUT"

PRECISIONS = (16, 32, 64)
"""Lane widths in bits that float32, float16 and bfloat16 may travel in."""

INTEGER_LANE_BITS = 32
"""int8, uint8 and int32 travel in these."""
WIDE_LANE_BITS = 64
"""float64 and int64 travel in these."""


class OptionError(ValueError):
    """An environment variable has a value that means nothing; names it and the legal choices."""


class Transport(StrEnum):
    """How packets get to the switch."""

    SHM = "shm"
    UDP = "udp"


@dataclass(frozen=True)
class Options:
    """Settings of the host agent in one process."""

    controller: str
    """``host:port`` of the controller's gRPC services; empty: none, so nothing goes through a switch.

    ``NETREDUCE_CONTROLLER``.  Must be the same on all ranks.
    """

    transport: Transport = Transport.SHM
    """``NETREDUCE_TRANSPORT``: ``shm`` to an embedded switch on this machine, ``udp`` over the network.

    Must be the same on all ranks.
    """

    precision: int = 32
    """``NETREDUCE_PRECISION``: lane width of float32, float16 and bfloat16, bits: 16, 32 or 64.

    Must be the same on all ranks.  See docs/numerics.md for the error bound of each.
    """

    host_ip: str | None = None
    """``NETREDUCE_HOST_IP``: IPv4 address that this rank sends from and receives at over ``udp``.

    Precedence: this, then the address of ``NETREDUCE_HOST_INTERFACE``, then the source address that the
    kernel's routing picks towards the controller.
    """

    host_interface: str | None = None
    """``NETREDUCE_HOST_INTERFACE``: network interface whose IPv4 address is used over ``udp``."""

    job_name: str | None = None
    """``NETREDUCE_JOB_NAME``: what people see in ``netreduce ctl jobs``; default: the script's name."""

    join_timeout: timedelta = timedelta(seconds=30)
    """``NETREDUCE_JOIN_TIMEOUT``, seconds: how long a process group waits for its other ranks and the switch
    before it makes do with Gloo."""

    @property
    def lane_bits(self) -> list[int]:
        """Lane widths to ask the controller for, one stream each; ascending."""
        return sorted({self.precision, INTEGER_LANE_BITS, WIDE_LANE_BITS})

    @property
    def terms(self) -> dict[str, str | int]:
        """What has to be the same on all ranks."""
        return {CONTROLLER: self.controller, TRANSPORT: str(self.transport), PRECISION: self.precision}


def read_options(environment: Mapping[str, str] = os.environ) -> Options:
    """Options from environment variables; an empty variable counts as unset.

    Raises:
        OptionError: a variable has a value outside its legal choices.
    """

    def value(name: str) -> str | None:
        return environment.get(name, "").strip() or None

    defaults = Options(controller="")
    controller = value(CONTROLLER) or ""
    if controller:
        _check_address(controller)
    host_ip = value(HOST_IP)
    if host_ip is not None:
        _check_ip(host_ip)
    return Options(
        controller=controller,
        transport=_transport(value(TRANSPORT)) or defaults.transport,
        precision=_precision(value(PRECISION)) or defaults.precision,
        host_ip=host_ip,
        host_interface=value(HOST_INTERFACE),
        job_name=value(JOB_NAME),
        join_timeout=_seconds(JOIN_TIMEOUT, value(JOIN_TIMEOUT)) or defaults.join_timeout,
    )


def _check_address(address: str) -> None:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise OptionError(f"{CONTROLLER}={address!r} is not host:port, for example 127.0.0.1:50060")


def _check_ip(address: str) -> None:
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        raise OptionError(f"{HOST_IP}={address!r} is not an IPv4 address, for example 10.0.0.1") from None


def _transport(text: str | None) -> Transport | None:
    if text is None:
        return None
    try:
        return Transport(text.lower())
    except ValueError:
        choices = " or ".join(Transport)
        raise OptionError(f"{TRANSPORT}={text!r} is not a transport; choose {choices}") from None


def _precision(text: str | None) -> int | None:
    if text is None:
        return None
    if text not in map(str, PRECISIONS):
        *others, last = map(str, PRECISIONS)
        choices = f"{', '.join(others)} or {last}"
        raise OptionError(f"{PRECISION}={text!r} is not a lane width in bits; choose {choices}")
    return int(text)


def _seconds(name: str, text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= 86400:
        raise OptionError(f"{name}={text!r} is not a number of seconds between 0 and 86400, for example 30")
    return timedelta(seconds=seconds)
