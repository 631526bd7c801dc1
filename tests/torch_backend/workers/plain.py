"""A script that knows nothing of this project: ``python plain.py [BACKEND]``."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group(sys.argv[1] if len(sys.argv) > 1 else "gloo")
data = torch.ones(3)
dist.all_reduce(data)
assert (data == dist.get_world_size()).all()
dist.destroy_process_group()
print("fine")
