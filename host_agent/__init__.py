"""NetReduce host agent: the datapath and the torch.distributed backend.

Importing this package after torch registers the backend name "netreduce".  Where torch is not
imported yet, ``import torch`` does it by itself (entry point group ``torch.backends``).
"""

import sys

if hasattr(sys.modules.get("torch"), "distributed"):
    from netreduce.host_agent.registration import register

    register()
