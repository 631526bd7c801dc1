"""The system calls that move a thread between network namespaces; Python has them from 3.12 on."""

import ctypes
import os

CLONE_NEWNET = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


def unshare_network() -> None:
    """Gives this thread a new, empty network namespace.

    Raises:
        OSError: it may not.
    """
    _check(_libc.unshare(CLONE_NEWNET), "a network namespace cannot be made")


def enter_network(descriptor: int) -> None:
    """Moves this thread into the network namespace that `descriptor` refers to.

    Raises:
        OSError: it may not, or `descriptor` is something else.
    """
    _check(_libc.setns(descriptor, CLONE_NEWNET), "a network namespace cannot be entered")


def _check(status: int, problem: str) -> None:
    if status:
        number = ctypes.get_errno()
        raise OSError(number, f"{problem}: {os.strerror(number)}")
