"""What every test shares: reasons for skipping, and a check that nothing is left behind."""

import os
import shutil
from collections.abc import Iterator

import psutil
import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips, with the reason, what this machine or user cannot run."""
    reasons = {
        "root": None if os.geteuid() == 0 else "needs root (network namespaces, AF_PACKET)",
        "bmv2": None if shutil.which("simple_switch_grpc") else "simple_switch_grpc is not on PATH",
        "p4c": None if shutil.which("p4c") or shutil.which("p4c-bm2-ss") else "p4c is not on PATH",
    }
    for item in items:
        for marker, reason in reasons.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fails the session when its tests left processes, shared memory or interfaces."""
    before = _footprint()
    yield
    children = [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]
    left = {f"process {p.pid}: {' '.join(p.cmdline())[:120]}" for p in children if not _is_helper(p)}
    left |= _footprint() - before
    assert not left, f"left behind: {sorted(left)}"


def _is_helper(process: psutil.Process) -> bool:
    """Python's own resource tracker and fork server live until the interpreter exits."""
    line = " ".join(process.cmdline())
    return "multiprocessing.resource_tracker" in line or "multiprocessing.forkserver" in line


def _footprint() -> set[str]:
    shared = {f"/dev/shm/{name}" for name in os.listdir("/dev/shm")} if os.path.isdir("/dev/shm") else set()
    interfaces = {f"interface {name}" for name in os.listdir("/sys/class/net")}
    namespaces = (
        {f"netns {name}" for name in os.listdir("/run/netns")} if os.path.isdir("/run/netns") else set()
    )
    return shared | interfaces | namespaces
