"""Child processes that report when they are ready, die with their parent and leave nothing behind."""

import collections
import contextlib
import ctypes
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

import psutil

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LOG_LINES_KEPT = 200
POLL_INTERVAL_S = 0.1

_libc = ctypes.CDLL(None, use_errno=True)


class ServiceError(RuntimeError):
    """A service did not start or ended by itself; the message carries the end of its log."""


def die_with_parent(number: int = signal.SIGTERM) -> Callable[[], None]:
    """A ``preexec_fn`` that makes the kernel send `number` to the child when its parent dies."""
    parent = os.getpid()

    def preexec() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:  # the parent died before prctl took effect
            os._exit(1)

    return preexec


def adopt_orphans() -> None:
    """Makes this process the parent of its descendants' orphans, so that they can be found and ended."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_descendants(patience: timedelta = timedelta(seconds=5), keep: Collection[int] = ()) -> list[int]:
    """Ends every process below this one, SIGTERM first, SIGKILL after `patience`.

    Those in `keep` stay, with what is below them.  Returns the pids that were still there.
    """
    doomed = []
    for child in psutil.Process().children():
        if child.pid not in keep:
            doomed.append(child)
            with contextlib.suppress(psutil.NoSuchProcess):
                doomed += child.children(recursive=True)
    for child in doomed:
        _quietly(child.terminate)
    _, alive = psutil.wait_procs(doomed, timeout=patience.total_seconds())
    for child in alive:
        _quietly(child.kill)
    psutil.wait_procs(alive, timeout=patience.total_seconds())
    return [child.pid for child in doomed]


def _quietly(action: Callable[[], None]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile: what was wanted
        action()


class Service:
    """One long-running child process (switch, controller) of this package.

    The child gets ``--ready-fd N`` and writes one line there when it serves; its output is kept in
    memory and shown only when something goes wrong.
    """

    def __init__(self, name: str, arguments: Sequence[str], pass_fds: Sequence[int] = ()) -> None:
        self.name = name
        read_end, write_end = os.pipe()
        self._ready_fd = read_end
        self._log: collections.deque[str] = collections.deque(maxlen=LOG_LINES_KEPT)
        try:
            self._process = subprocess.Popen(
                [*arguments, "--ready-fd", str(write_end)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[write_end, *pass_fds],
                preexec_fn=die_with_parent(),
                start_new_session=True,  # Ctrl-C is the launcher's to handle
                text=True,
                errors="replace",
            )
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        self._reader = threading.Thread(target=self._collect, name=f"{name}-log", daemon=True)
        self._reader.start()

    def _collect(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._log.append(line.rstrip("\n"))

    @property
    def pid(self) -> int:
        return self._process.pid

    def log(self) -> str:
        """The last lines that the service printed."""
        return "\n".join(self._log)

    def obituary(self, log: bool = True) -> str:
        """That a service which should run has ended, how, and (`log`) the last lines that it printed."""
        code = self._process.poll()
        how = (
            f"was ended by {signal.Signals(-code).name}" if code and code < 0 else f"ended (exit code {code})"
        )
        lines = self.log() if log else ""
        return f"the {self.name} {how} during the run" + (f"; its log ends:\n{lines}" if lines else "")

    def running(self) -> bool:
        return self._process.poll() is None

    def wait_ready(self, patience: timedelta, poll: Callable[[], None] = lambda: None) -> str:
        """Returns the ready line.

        `poll` is called ten times a second meanwhile; what it raises ends the wait.

        Raises:
            ServiceError: the process ended, or said nothing within `patience`.
        """
        deadline = time.monotonic() + patience.total_seconds()
        received = b""
        try:
            while not received.endswith(b"\n"):
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise ServiceError(
                        f"{self.name} did not become ready within {patience.total_seconds():g} s; "
                        f"its log ends:\n{self.log()}"
                    )
                poll()
                if not select.select([self._ready_fd], [], [], min(remaining, POLL_INTERVAL_S))[0]:
                    continue
                piece = os.read(self._ready_fd, 4096)
                if not piece:
                    self._process.wait(timeout=5)
                    self._reader.join(timeout=5)
                    raise ServiceError(
                        f"{self.name} ended with exit code {self._process.returncode} before it was ready; "
                        f"its log ends:\n{self.log()}"
                    )
                received += piece
        finally:
            os.close(self._ready_fd)
            self._ready_fd = -1
        return received.decode().strip()

    def stop(self, patience: timedelta = timedelta(seconds=10)) -> int:
        """SIGTERM, then SIGKILL after `patience`; returns the exit code."""
        if self._ready_fd >= 0:
            os.close(self._ready_fd)
            self._ready_fd = -1
        if self.running():
            self._process.terminate()
        try:
            code = self._process.wait(timeout=patience.total_seconds())
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._reader.join(timeout=5)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code
