"""NetReduce host agent: the datapath and the torch.distributed backend.

Importing this package after torch registers the backend name "netreduce".  Where torch is not
imported yet, ``import torch`` does it by itself (entry point group ``torch.backends``).
"""

import sys


def _torch_is_imported() -> bool:
    torch = sys.modules.get("torch")
    # While torch is being imported, its entry point brings us here, and then registers by itself.
    return hasattr(torch, "distributed") and not getattr(torch.__spec__, "_initializing", False)


if _torch_is_imported():
    from netreduce.host_agent.registration import register

    register()
