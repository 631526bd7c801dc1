"""``netreduce run``: torchrun on this machine, its all-reduces summed by the embedded switch."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from netreduce.controller.api import job_service_pb2 as api
from netreduce.p4 import wire
from netreduce.softswitch.fault import Fault
from netreduce.topologies import enter_host
from netreduce.topologies.embedded import EmbeddedOptions, EmbeddedStack
from netreduce.topologies.namespaces import HostNamespaces, own_network
from netreduce.topologies.processes import adopt_orphans, die_with_parent, end_descendants
from netreduce.topologies.reports import finished_jobs

SHM_PORTS_MAX = 448
"""v1model port numbers have 9 bits; the rest is kept for other uses."""
SHM_PORTS_PER_WORKER = 16
"""Process groups that one worker can have on the switch at a time."""
FORWARDED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOST_SWITCH_PATIENCE = timedelta(seconds=10)
"""For the workers to fail by themselves, with their own messages, when the switch has ended."""
END_PATIENCE = timedelta(seconds=35)
"""For torchrun to end its workers, which it gives 30 s after SIGTERM."""


class UsageError(ValueError):
    """The command line asks for something that cannot work; the message says what to change."""


@dataclass(frozen=True)
class RunOptions:
    """One ``netreduce run``."""

    script: str
    """Path of the training script."""
    arguments: Sequence[str] = ()
    """The script's own arguments."""
    workers: int = 2
    """Worker processes, 1 to wire.MAX_RANKS."""
    transport: str = "shm"
    """``shm``: shared-memory ports, no root. ``udp``: a network namespace per worker and kernel sockets."""
    precision: int = 32
    """Lane width of float32, float16 and bfloat16, bits: 16, 32 or 64."""
    window: int = wire.MAX_WINDOW
    """Packets a rank may have outstanding."""
    faults: Sequence[str] = ()
    """Seeded faults of the switch's ports, as for ``netreduce switch --fault``."""


@dataclass(frozen=True)
class RunResult:
    """How a run ended."""

    exit_code: int
    """Torchrun's; 128 + n when signal n ended the run."""
    jobs: Sequence[api.JobInfo]
    """The controller's record of every job, with the switch's counters."""
    trouble: str = ""
    """What went wrong with the switch or controller, if anything."""


def check(options: RunOptions) -> None:
    """Raises UsageError for what can be seen before anything starts."""
    script = Path(options.script)
    if not script.is_file():
        state = "is not a file" if script.exists() else "does not exist"
        raise UsageError(f"script {options.script!r} {state}; give the path of a Python file")
    if not 1 <= options.workers <= wire.MAX_RANKS:
        raise UsageError(
            f"--workers {options.workers}: one switch sums 1 to {wire.MAX_RANKS} ranks (its bitmap's width)"
        )
    for fault in options.faults:
        try:
            Fault.parse(fault)
        except ValueError as error:
            raise UsageError(f"--fault {error}") from None
    if options.transport == "udp" and os.geteuid() != 0:
        raise UsageError(
            "--transport udp gives every worker a network namespace, which needs root; "
            "run as root, or use --transport shm"
        )


def run(options: RunOptions) -> RunResult:
    """Starts switch and controller, runs the script under torchrun, and ends everything.

    Signals that arrive meanwhile go to torchrun; a second one ends it at once.

    Raises:
        UsageError: see `check`.
        ServiceError: the switch or the controller does not start.
        OSError: network namespaces cannot be made, or the controller does not say what it counted.
    """
    check(options)
    adopt_orphans()
    network: AbstractContextManager[None] = nullcontext()
    hosts: AbstractContextManager[HostNamespaces | None] = nullcontext()
    if options.transport == "udp":
        # The switch's ends of the links are in a namespace too, so that none stays if we are killed.
        network, hosts = own_network(), HostNamespaces(options.workers)
    with _SignalForwarder() as forwarder:
        try:
            with (
                network,
                hosts as namespaces,
                EmbeddedStack(_stack_options(options, namespaces), forwarder.poll) as stack,
            ):
                with tempfile.TemporaryDirectory(prefix="netreduce-run-") as folder:
                    command = _command(options, stack.controller, namespaces, folder)
                    code = _run_torchrun(command, forwarder, stack)
                # Workers that outlived a torchrun that was killed, and what scripts left running.
                keep = [service.pid for service in stack.services]
                end_descendants(
                    keep=[*keep, *(host.pid for host in (namespaces.hosts if namespaces else ()))]
                )
                failed = stack.failed()
                trouble = failed.obituary() if failed else ""
                jobs: Sequence[api.JobInfo] = () if trouble else finished_jobs(stack.controller)
        except _Interrupted as interrupted:
            return RunResult(128 + interrupted.number, ())
        finally:
            forwarder.end()
            end_descendants()
    return RunResult(code, jobs, trouble)


def _stack_options(options: RunOptions, namespaces: HostNamespaces | None) -> EmbeddedOptions:
    if namespaces is not None:
        return EmbeddedOptions(
            hosts=namespaces.links,
            window=options.window,
            faults=options.faults,
            listen=f"{namespaces.controller_ip}:0",
        )
    return EmbeddedOptions(
        shm_ports=min(SHM_PORTS_PER_WORKER * options.workers, SHM_PORTS_MAX),
        window=options.window,
        faults=options.faults,
    )


@dataclass(frozen=True)
class _Command:
    """Torchrun."""

    arguments: Sequence[str]
    environment: dict[str, str]


def _command(
    options: RunOptions, controller: str, namespaces: HostNamespaces | None, folder: str
) -> _Command:
    """`folder` is for torchrun's files, which it would leave in the system's temporary one."""
    # Torchrun's own variables (a cluster's operator sets them) would override how many nodes there are.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PET_")}
    environment["NETREDUCE_CONTROLLER"] = controller
    environment["NETREDUCE_TRANSPORT"] = options.transport
    environment["NETREDUCE_PRECISION"] = str(options.precision)
    environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "1"
    # What torchrun would choose too, without its warning.
    environment.setdefault("OMP_NUM_THREADS", "1")
    torchrun = [
        sys.executable, "-m", "torch.distributed.run",
        "--nproc-per-node", str(options.workers), "--log-dir", folder,
    ]  # fmt: skip
    script = [options.script, *options.arguments]
    if namespaces is None:
        return _Command([*torchrun, "--standalone", *script], environment)
    # Like --standalone, on an address that the hosts reach.
    address = namespaces.controller_ip
    arguments = [
        *torchrun, "--nnodes", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{address}:0",
        "--rdzv-conf", "is_host=1", "--rdzv-id", uuid.uuid4().hex, "--local-addr", address,
        "--no-python", *enter_host.command(script),
    ]  # fmt: skip
    return _Command(arguments, environment | enter_host.environment(namespaces.hosts))


class _Interrupted(Exception):
    """A signal arrived before there was a torchrun that it could be forwarded to."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _SignalForwarder:
    """Sends the signals that reach this process on to torchrun.

    The handler itself never raises: an exception can come anywhere, in a callback that swallows it too.
    What waits before torchrun runs calls `poll`. Signals that come when everything is being ended are only
    noted: that must not be cut short, and takes a bounded time.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._process: subprocess.Popen | None = None
        self._previous: dict[int, object] = {}
        self._pid = os.getpid()

    def __enter__(self) -> "_SignalForwarder":
        for number in FORWARDED_SIGNALS:
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def poll(self) -> None:
        """Raises _Interrupted if a signal has come."""
        if self.received is not None:
            raise _Interrupted(self.received)

    def attach(self, process: subprocess.Popen) -> None:
        """Torchrun runs; a signal that came while it was started goes to it now."""
        self._process = process
        if self.received is not None:
            process.send_signal(self.received)

    def end(self) -> None:
        """Torchrun is over, or never was."""
        self._process = None

    def _handle(self, number: int, _frame: object) -> None:
        if os.getpid() != self._pid:  # a child that has not become its own program yet
            os._exit(128 + number)
        again = self.received is not None
        self.received = number
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL if again else number)


def _run_torchrun(command: _Command, forwarder: _SignalForwarder, stack: EmbeddedStack) -> int:
    """Runs torchrun to its end and returns its exit code.

    A switch that ends takes the run along: no all-reduce can finish any more.  Without the controller
    training goes on; only what the switch counted is lost, and new process groups use Gloo.
    """
    forwarder.poll()
    process = subprocess.Popen(
        command.arguments,
        env=command.environment,
        preexec_fn=die_with_parent(),
        start_new_session=True,  # a terminal's Ctrl-C reaches torchrun once, through us
    )
    forwarder.attach(process)
    watched = stack.services
    deadline = float("inf")
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(timeout=0.2)
            break
        for service in [service for service in watched if not service.running()]:
            watched = [other for other in watched if other is not service]
            lost = service is stack.switch
            what_now = "the run ends" if lost else "training goes on, uncounted"
            print(f"netreduce: {service.obituary(log=False)}; {what_now}", file=sys.stderr, flush=True)
            if lost:
                deadline = time.monotonic() + LOST_SWITCH_PATIENCE.total_seconds()
        if time.monotonic() >= deadline:
            code = _end(process)
            break
    forwarder.end()
    if forwarder.received is not None:
        return 128 + forwarder.received
    return 128 - code if code < 0 else code


def _end(process: subprocess.Popen) -> int:
    """SIGTERM, then SIGKILL after `END_PATIENCE`; returns the exit code."""
    process.terminate()
    try:
        return process.wait(timeout=END_PATIENCE.total_seconds())
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
