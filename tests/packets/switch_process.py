"""The embedded switch as a process of its own."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from netreduce.topologies.processes import Service

START_TIMEOUT = timedelta(seconds=90)
"""The switch may have to compile itself first."""


@contextmanager
def switch_process(*options: str, device_id: int = 1) -> Iterator[tuple[Service, str]]:
    """``netreduce switch`` with ``options`` and no program yet, and its P4Runtime address."""
    command = [sys.executable, "-m", "netreduce.controller.cli.main", "switch", "--no-p4"]
    command += ["--device-id", str(device_id), "--grpc-server-addr", "127.0.0.1:0", "--exit-with-parent"]
    service = Service("embedded switch", [*command, *options])
    try:
        yield service, service.wait_ready(START_TIMEOUT).split()[-1]
    finally:
        service.stop()
