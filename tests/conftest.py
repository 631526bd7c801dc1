"""What every test shares: reasons for skipping, and a check that nothing is left behind."""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator

import hypothesis
import psutil
import pytest

from netreduce.p4.compile import COMPILER
from packets.interface_names import PREFIX

PATIENCE_S = 10.0

# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile("netreduce", deadline=None)
hypothesis.settings.load_profile("netreduce")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips, with the reason, what this machine or user cannot run."""
    reasons = {
        "root": None if os.geteuid() == 0 else "needs root (network namespaces, AF_PACKET)",
        "bmv2": None if shutil.which("simple_switch_grpc") else "simple_switch_grpc is not on PATH",
        "p4c": None if shutil.which(COMPILER) else f"{COMPILER} is not on PATH",
    }
    for item in items:
        for marker, reason in reasons.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fails the session when its tests left processes, shared memory, interfaces or namespaces."""
    before = _footprint()
    yield
    deadline = time.monotonic() + PATIENCE_S
    while (left := _processes() | (_footprint() - before)) and time.monotonic() < deadline:
        time.sleep(0.1)  # the kernel takes namespaces apart in the background; bounded by the deadline
    assert not left, f"left behind: {sorted(left)}"


def _processes() -> set[str]:
    left = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            line = " ".join(process.cmdline())
            # Python's own resource tracker and fork server live until the interpreter exits.
            own = "multiprocessing.resource_tracker" in line or "multiprocessing.forkserver" in line
            if process.status() != psutil.STATUS_ZOMBIE and not own:
                left.add(f"process {process.pid}: {line[:120]}")
    return left


def _footprint() -> set[str]:
    """What has a name of ours: other programs, and other runs of the tests, come and go too."""
    return {
        f"{folder}/{name}"
        for folder in ("/dev/shm", "/sys/class/net", "/run/netns")
        if os.path.isdir(folder)
        for name in os.listdir(folder)
        if name.startswith((PREFIX, "netreduce"))
    }
