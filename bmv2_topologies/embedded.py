"""One embedded switch and its controller on this machine, for as long as a block runs."""

import os
import secrets
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType

import yaml

from netreduce.p4.wire import MAX_WINDOW
from netreduce.topologies.processes import Service

SWITCH_NAME = "s1"
DEVICE_ID = 1


@dataclass(frozen=True)
class HostLink:
    """A host with an interface of its own, plugged into a switch port."""

    name: str
    port: int
    interface: str
    """The switch's end of the link."""
    mac: str
    ip: str


@dataclass(frozen=True)
class EmbeddedOptions:
    """What the embedded switch and controller look like."""

    shm_ports: int = 0
    """Shared-memory ports, numbered from 1; each process group of each worker takes one."""
    hosts: Sequence[HostLink] = ()
    """Hosts on interfaces (needs root)."""
    window: int = MAX_WINDOW
    """Packets a rank may have outstanding."""
    faults: Sequence[str] = ()
    """Seeded faults of the switch's ports, in the words of ``netreduce switch --fault``."""
    listen: str = "127.0.0.1:0"
    """Where the controller serves host agents."""
    start_timeout: timedelta = timedelta(seconds=120)
    """Patience for either process; the first start compiles the switch."""
    extra_switch_arguments: Sequence[str] = field(default_factory=tuple)


class EmbeddedStack:
    """Context manager: a running switch and a controller that has it ready.

    Attributes:
        controller: ``host:port`` of the controller's gRPC services, set on entry.

    Args:
        poll: called again and again while either process starts; what it raises ends the start.

    Raises:
        ServiceError: on entry, when either process does not start; the message carries its log.
    """

    def __init__(self, options: EmbeddedOptions, poll: Callable[[], None] = lambda: None) -> None:
        self._options = options
        self._poll = poll
        self._cleanup = ExitStack()
        self.controller = ""
        self.services: list[Service] = []

    def __enter__(self) -> "EmbeddedStack":
        try:
            self._start()
        except BaseException:
            self._cleanup.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    def failed(self) -> Service | None:
        """The first service that ended by itself, if any."""
        return next((service for service in self.services if not service.running()), None)

    @property
    def switch(self) -> Service:
        """The embedded switch."""
        return self.services[0]

    def _launch(self, name: str, arguments: Sequence[str], pass_fds: Sequence[int] = ()) -> str:
        service = Service(name, [sys.executable, "-m", "netreduce.controller.cli.main", *arguments], pass_fds)
        self.services.append(service)
        self._cleanup.callback(service.stop)
        return service.wait_ready(self._options.start_timeout, self._poll)

    def _start(self) -> None:
        options = self._options
        # An abstract socket name: nothing in the file system, gone with the switch.
        socket_name = f"@netreduce-{os.getpid()}-{secrets.token_hex(4)}"
        switch_arguments = [
            "switch", "--no-p4", "--device-id", str(DEVICE_ID), "--grpc-server-addr", "127.0.0.1:0",
            "--exit-with-parent", *options.extra_switch_arguments,
        ]  # fmt: skip
        if options.shm_ports:
            switch_arguments += ["--shm-socket", socket_name, "--shm-ports", f"1-{options.shm_ports}"]
        for host in options.hosts:
            switch_arguments += ["-i", f"{host.port}@{host.interface}"]
        for fault in options.faults:
            switch_arguments += ["--fault", fault]
        grpc_address = self._launch("embedded switch", switch_arguments).split()[-1]

        # The topology is a document in memory: no temporary file to forget.
        topology = os.memfd_create("netreduce-topology")
        self._cleanup.callback(os.close, topology)
        os.write(topology, yaml.safe_dump(self._topology(grpc_address, socket_name)).encode())
        ready = self._launch(
            "controller",
            [
                "controller", "--topology", f"/proc/self/fd/{topology}", "--listen", options.listen,
                "--window", str(options.window), "--exit-with-parent",
            ],
            pass_fds=[topology],
        )  # fmt: skip
        self.controller = ready.split()[-1]

    def _topology(self, grpc_address: str, socket_name: str) -> dict:
        document: dict = {
            "switches": [{"name": SWITCH_NAME, "address": grpc_address, "device_id": DEVICE_ID}],
        }
        if self._options.hosts:
            document["hosts"] = [
                {"name": h.name, "mac": h.mac, "ip": h.ip, "switch": SWITCH_NAME, "port": h.port}
                for h in self._options.hosts
            ]
        if self._options.shm_ports:
            document["shm_pools"] = [
                {
                    "switch": SWITCH_NAME,
                    "socket": socket_name,
                    "first_port": 1,
                    "count": self._options.shm_ports,
                }
            ]
        return document
