"""What may stand in a topology file.  ``docs/controller.md`` shows a complete one."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from netreduce.controller.topology.addresses import canonical_ip, canonical_mac

MAX_PORT = 510
"""v1model ports have 9 bits and the last one, 511, means drop."""

MAX_SOCKET_NAME = 107
"""Bytes of sockaddr_un's path without the final NUL."""

_RANGE = re.compile(r"(\d+)\s*-\s*(\d+)")
_INTERFACE = re.compile(r"[^\s/:\0]{1,15}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f"{text!r} is not a name; use letters, digits, '.', '-' and '_', at most 63")
    return text


def _grpc_address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not an address; write it as host:port, e.g. 127.0.0.1:9559")
    return text


def _port_set(value: Any) -> Any:
    """``[1, 2, "4-7"]`` or ``"1-16"`` as a sorted list of numbers."""
    ports: set[int] = set()
    for item in value if isinstance(value, list) else [value]:
        match = _RANGE.fullmatch(item.strip()) if isinstance(item, str) else None
        if match:
            first, last = int(match[1]), int(match[2])
        elif isinstance(item, int) and not isinstance(item, bool):
            first = last = item
        else:
            raise ValueError(f'{item!r} is not a port or range of ports; write 3 or "4-7"')
        if not 0 <= first <= last <= MAX_PORT:
            raise ValueError(f"ports are 0 to {MAX_PORT}, smaller number first; found {item!r}")
        ports.update(range(first, last + 1))
    return sorted(ports)


def _socket_name(text: str) -> str:
    name = text.removeprefix("@")
    if not name or "\0" in name or len(text.encode()) > MAX_SOCKET_NAME:
        raise ValueError(
            f"{text!r} is not the name of a Unix socket; write a path, or @name for one without a file,"
            f" at most {MAX_SOCKET_NAME} bytes"
        )
    return text


def _interface_name(text: str) -> str:
    if not _INTERFACE.fullmatch(text) or text in (".", ".."):
        raise ValueError(f"{text!r} is not the name of a network interface; they have 1 to 15 characters")
    return text


Name = Annotated[str, AfterValidator(_name)]
Mac = Annotated[str, AfterValidator(canonical_mac)]
Ip = Annotated[str, AfterValidator(canonical_ip)]
Port = Annotated[int, Field(ge=0, le=MAX_PORT)]


class Strict(BaseModel):
    """A key that is not known is an error: a misspelt one must not be ignored."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SwitchSpec(Strict):
    """One P4Runtime device."""

    name: Name
    address: Annotated[str, AfterValidator(_grpc_address)]
    device_id: Annotated[int, Field(ge=1, lt=2**64)] = 1
    ports: Annotated[list[int] | None, BeforeValidator(_port_set)] = None


class HostSpec(Strict):
    """One network interface of a host, plugged into a switch port."""

    name: Name
    mac: Mac
    ip: Ip
    switch: str
    port: Port
    veth: Annotated[str, AfterValidator(_interface_name)] | None = None


class AddressSpec(Strict):
    """Addresses of one shm port."""

    mac: Mac
    ip: Ip


class ShmPoolSpec(Strict):
    """A run of switch ports in shared memory; one is lent to each rank."""

    switch: str
    socket: Annotated[str, AfterValidator(_socket_name)]
    first_port: Port
    count: Annotated[int, Field(ge=1, le=MAX_PORT + 1)]
    addresses: list[AddressSpec] | None = None


class TopologySpec(Strict):
    """The whole file."""

    switches: Annotated[list[SwitchSpec], Field(min_length=1)]
    hosts: list[HostSpec] = []
    shm_pools: list[ShmPoolSpec] = []
    links: list[Any] = []

    @field_validator("links")
    @classmethod
    def _no_links(cls, links: list[Any]) -> list[Any]:
        if links:
            raise ValueError(
                "links between switches are not supported yet: a job uses one switch; remove this key"
            )
        return links
