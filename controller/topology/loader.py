"""Reads a topology file and checks what a schema cannot: references and duplicates across the file."""

import difflib
import reprlib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from netreduce.controller.topology import document
from netreduce.controller.topology.addresses import derived_ip, derived_mac
from netreduce.controller.topology.inventory import Attachment, Inventory, SwitchPort
from netreduce.controller.topology.schema import (
    MAX_PORT,
    HostSpec,
    ShmPoolSpec,
    Strict,
    SwitchSpec,
    TopologySpec,
)

_MODELS = {"switches": SwitchSpec, "hosts": HostSpec, "shm_pools": ShmPoolSpec}


class TopologyError(Exception):
    """The file cannot be used.  The message has one line per problem: file, key path, what is allowed."""

    def __init__(self, source: str, problems: list[str]):
        super().__init__("\n".join(f"{source}: {problem}" for problem in problems))
        self.problems = problems


def load_topology(path: Path | str) -> Inventory:
    """Read and check a YAML file.  Raises TopologyError."""
    try:
        text = document.read_text(path)
    except document.DocumentError as error:
        raise TopologyError(str(path), [str(error)]) from error
    return parse_topology(text, str(path))


def parse_topology(text: str, source: str = "topology") -> Inventory:
    """Check the text of a topology file; ``source`` is named in messages.  Raises TopologyError."""
    try:
        content = document.parse(text)
    except document.DocumentError as error:
        raise TopologyError(source, [str(error)]) from error
    if not isinstance(content, dict):
        allowed = ", ".join(TopologySpec.model_fields)
        raise TopologyError(source, [f"must be a mapping with the keys {allowed}"])
    try:
        spec = TopologySpec.model_validate(content)
    except ValidationError as error:
        raise TopologyError(source, [_explain(problem) for problem in error.errors()]) from error
    return _resolve(spec, source)


def _explain(problem: Any) -> str:
    """One sentence for one pydantic error."""
    path = _key_path(problem["loc"])
    match problem["type"]:
        case "missing":
            return f"{path}: is missing"
        case "extra_forbidden":
            known = list(_model_at(problem["loc"]).model_fields)
            close = difflib.get_close_matches(str(problem["loc"][-1]), known, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            return f"{path}: unknown key; {hint}Allowed here: {', '.join(known)}"
        case "value_error":
            return f"{path}: {problem['ctx']['error']}"
    message = problem["msg"][0].lower() + problem["msg"][1:]
    return f"{path}: {message}, found {_short(problem['input'])}"


def _short(value: Any) -> str:
    """For a message: a value may be huge, and with YAML's aliases far larger than its file."""
    form = reprlib.Repr()
    form.maxstring = form.maxother = form.maxlong = 80
    form.maxlevel = 2
    return form.repr(value)


def _model_at(location: tuple) -> type[Strict]:
    """The model that lacks the key at this location."""
    if len(location) < 3:
        return TopologySpec
    if location[0] == "shm_pools" and "addresses" in location[:-1]:
        return ShmPoolSpec.model_fields["addresses"].annotation.__args__[0].__args__[0]
    return _MODELS[location[0]]


def _key_path(location: tuple) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path


class _Claims:
    """Things that may occur once, and where each was first seen."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, Any], str] = {}
        self.problems: list[str] = []

    def claim(self, kind: str, value: Any, path: str, hint: str = "") -> None:
        first = self._seen.setdefault((kind, value), path)
        if first != path:
            self.problems.append(f"{path}: {kind} {value} is already used by {first}{hint}")


def _resolve(spec: TopologySpec, source: str) -> Inventory:
    claims = _Claims()
    switches: dict[str, SwitchSpec] = {}
    where: dict[str, str] = {}
    for i, switch in enumerate(spec.switches):
        claims.claim("switch name", switch.name, f"switches[{i}].name")
        device = f"{switch.address} device_id {switch.device_id}"
        claims.claim("address", device, f"switches[{i}].address")
        if switch.name not in switches:
            switches[switch.name], where[switch.name] = switch, f"switches[{i}]"

    ports: list[SwitchPort] = []
    for i, host in enumerate(spec.hosts):
        path = f"hosts[{i}]"
        claims.claim("host name", host.name, f"{path}.name")
        if _known_switch(host.switch, f"{path}.switch", switches, claims):
            _check_port(host.port, f"{path}.port", switches[host.switch], where, claims)
        network, veth = Attachment.NETWORK, host.veth or ""
        port = SwitchPort(host.switch, host.port, host.name, host.mac, host.ip, network, veth=veth)
        _claim_port(port, path, f"{path}.port", claims)
        ports.append(port)

    for i, pool in enumerate(spec.shm_pools):
        path = f"shm_pools[{i}]"
        if not _known_switch(pool.switch, f"{path}.switch", switches, claims):
            continue
        for port in _pool_ports(pool, path, switches[pool.switch].device_id, claims):
            _check_port(port.number, f"{path}.first_port", switches[pool.switch], where, claims)
            _claim_port(port, f"{path}: port {port.number}", f"{path}: port {port.number}", claims)
            ports.append(port)

    if claims.problems:
        raise TopologyError(source, claims.problems)
    return Inventory(source, switches, ports)


def _known_switch(name: str, path: str, switches: dict[str, SwitchSpec], claims: _Claims) -> bool:
    if name in switches:
        return True
    claims.problems.append(f"{path}: no switch is named {name!r}; switches lists: {', '.join(switches)}")
    return False


def _check_port(number: int, path: str, switch: SwitchSpec, where: dict[str, str], claims: _Claims) -> None:
    if switch.ports is not None and number not in switch.ports:
        claims.problems.append(
            f"{path}: switch {switch.name} has no port {number}; {where[switch.name]}.ports lists its ports"
        )


def _claim_port(port: SwitchPort, path: str, port_path: str, claims: _Claims) -> None:
    hint = "; give the pool's addresses yourself (key addresses)" if port.attachment is Attachment.SHM else ""
    claims.claim("port", f"{port.number} of switch {port.switch}", port_path)
    claims.claim("MAC", port.mac, f"{path}.mac" if path.endswith("]") else path, hint)
    claims.claim("IP", port.ip, f"{path}.ip" if path.endswith("]") else path, hint)


def _pool_ports(pool: ShmPoolSpec, path: str, device_id: int, claims: _Claims) -> list[SwitchPort]:
    if pool.first_port + pool.count - 1 > MAX_PORT:
        claims.problems.append(
            f"{path}.count: ports {pool.first_port} to {pool.first_port + pool.count - 1} do not all exist;"
            f" the last possible port is {MAX_PORT}"
        )
        return []
    if pool.addresses is not None and len(pool.addresses) != pool.count:
        claims.problems.append(
            f"{path}.addresses: has {len(pool.addresses)} items, but {path}.count is {pool.count};"
            " give one per port, or leave the key out"
        )
        return []
    ports = []
    for i in range(pool.count):
        number = pool.first_port + i
        given = pool.addresses[i] if pool.addresses else None
        mac = given.mac if given else derived_mac(device_id, number)
        ip = given.ip if given else derived_ip(device_id, number)
        ports.append(SwitchPort(pool.switch, number, "shm", mac, ip, Attachment.SHM, socket=pool.socket))
    return ports
