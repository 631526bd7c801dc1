"""Starts a worker's script inside the network namespace of the worker's host.

Torchrun runs it in the place of the script, once per worker: with one torchrun for all hosts the workers'
store belongs to a process that outlives them all, on an address that every host reaches.
"""

import json
import os
import sys
from collections.abc import Sequence

from netreduce.topologies.kernel_namespaces import enter_network
from netreduce.topologies.namespaces import NamespaceHost

HOSTS = "NETREDUCE_TOPOLOGY_HOSTS"
"""From the launcher to `main`; the script does not see it."""


def command(script: Sequence[str]) -> list[str]:
    """What torchrun is to run, with ``--no-python``.

    The code is one word that begins with a dash, because torchrun's report names a failed worker by the
    first word that does not: the script.
    """
    code = "from netreduce.topologies.enter_host import main; main()"
    return [sys.executable, "-u", f"-c{code}", *script]


def environment(hosts: Sequence[NamespaceHost]) -> dict[str, str]:
    """What `main` has to find in its environment."""
    return {HOSTS: json.dumps([{"pid": host.pid, "environment": host.environment} for host in hosts])}


def main() -> None:
    """Does not return: becomes the script, whose words are in ``sys.argv``."""
    host = json.loads(os.environ.pop(HOSTS))[int(os.environ["LOCAL_RANK"])]
    try:
        _enter_network(host["pid"])
    except OSError as error:
        sys.exit(f"netreduce: the host of local rank {os.environ['LOCAL_RANK']} is gone: {error.strerror}")
    os.environ.update(host["environment"])
    os.execv(sys.executable, [sys.executable, "-u", *sys.argv[1:]])


def _enter_network(pid: int) -> None:
    namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    enter_network(namespace)
    os.close(namespace)
