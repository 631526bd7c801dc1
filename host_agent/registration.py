"""How torch.distributed learns of NetReduce: by name, and in place of "gloo".

Nothing heavy is imported here; :mod:`netreduce.host_agent.process_group` is, on first use.
"""

from __future__ import annotations

import threading
from typing import Any

BACKEND_NAME = "netreduce"

_plain = threading.local()


def register() -> None:
    """Register the backend name "netreduce" with torch.distributed.  Safe to call again.

    Needs torch; does nothing when torch was built without torch.distributed.
    """
    import torch.distributed as dist

    if not dist.is_available() or BACKEND_NAME in dist.Backend.backend_list:
        return
    dist.Backend.register_backend(BACKEND_NAME, _explicit, extended_api=True, devices=["cpu", "cuda"])


def stand_in_for_gloo() -> None:
    """Make process groups of backend "gloo" reduce through the switch.  Safe to call again.

    torch constructs the class ``ProcessGroupGloo`` that it finds in the globals of
    ``torch.distributed.distributed_c10d`` and checks what it got with ``isinstance``.  A subclass
    takes its place there: calling it makes our backend, and everything else about it is Gloo's.
    ``torch.distributed.ProcessGroupGloo``, which RPC and users construct, stays the original.
    """
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_gloo_available():
        return
    from torch.distributed import distributed_c10d

    gloo = distributed_c10d.ProcessGroupGloo
    if getattr(gloo, "_stands_in_for", None) is not None:
        return

    class StandInType(type(gloo)):
        """Metaclass: construction makes our backend, ``isinstance`` and ``issubclass`` are Gloo's."""

        def __call__(cls, *args: Any, **options: Any) -> Any:
            if getattr(_plain, "active", False):
                return gloo(*args, **options)
            return _transparent(gloo, *args, **options)

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, gloo)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, gloo)

    stand_in = StandInType("ProcessGroupGloo", (gloo,), {"_stands_in_for": gloo, "__doc__": gloo.__doc__})
    stand_in.__module__ = gloo.__module__
    make_wrapper = distributed_c10d._create_process_group_wrapper

    def create_process_group_wrapper(*args: Any, **options: Any) -> Any:
        # TORCH_DISTRIBUTED_DEBUG=DETAIL checks each collective over a Gloo group of its own.
        _plain.active = True
        try:
            return make_wrapper(*args, **options)
        finally:
            _plain.active = False

    distributed_c10d.ProcessGroupGloo = stand_in
    distributed_c10d._create_process_group_wrapper = create_process_group_wrapper


def _explicit(options: Any, _backend_options: Any) -> Any:
    """torch's creator for ``init_process_group("netreduce")``."""
    from netreduce.host_agent import process_group

    return process_group.create_explicit(options)


def _transparent(gloo: type, *args: Any, **options: Any) -> Any:
    """A process group for ``gloo(*args, **options)`` that reduces through the switch if it can."""
    try:
        from netreduce.host_agent import process_group
    except Exception as error:
        # Peers whose import works wait for this rank's word until their join timeout, then use Gloo too.
        import warnings

        warnings.warn(
            f"netreduce: using plain Gloo, because the host agent cannot be loaded: {error!r}; "
            "rebuild it with `make setup` (it must match the installed torch)",
            stacklevel=4,
        )
        return gloo(*args, **options)
    return process_group.create_transparent(gloo, *args, **options)
