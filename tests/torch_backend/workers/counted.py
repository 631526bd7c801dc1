"""Two all-reduces through the switch, a non-finite one, two of another op, and a broadcast."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
data = torch.ones(5000)
dist.all_reduce(data)
dist.all_reduce(data)
for _ in range(2):
    dist.all_reduce(data, op=dist.ReduceOp.MAX)
dist.broadcast(data, src=0)
data[7] = float("nan")
dist.all_reduce(data)
dist.destroy_process_group()
