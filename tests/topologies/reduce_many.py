"""A script under test: many all-reduces, their results recorded bit for bit.

    torchrun … reduce_many.py FOLDER [--loss]

Each rank writes FOLDER/rank<r>.json: a digest of every result, and whether integers were exact.
"""

import argparse
import hashlib
import json
from pathlib import Path

import torch
import torch.distributed as dist

SIZES = (1, 2, 63, 64, 65, 1000, 4094, 4095, 20_000)
FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
INTEGERS = (torch.int8, torch.uint8, torch.int32, torch.int64)


def tensor_of(rank: int, dtype: torch.dtype, size: int) -> torch.Tensor:
    """The input of `rank`: reproducible on any rank."""
    generator = torch.Generator().manual_seed(1000 * rank + size)
    if dtype.is_floating_point:
        return (torch.randn(size, generator=generator, dtype=torch.float64) * 10.0 ** (size % 7 - 3)).to(
            dtype
        )
    info = torch.iinfo(dtype)
    return torch.randint(info.min // 2, info.max // 2, (size,), generator=generator, dtype=dtype)


def digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    digests: dict[str, str] = {}
    wrong: list[str] = []
    for dtype in (*FLOATS, *INTEGERS):
        for size in SIZES:
            name = f"{dtype} {size}"
            tensor = tensor_of(rank, dtype, size)
            dist.all_reduce(tensor)
            inputs = [tensor_of(r, dtype, size) for r in range(world_size)]
            if dtype.is_floating_point:
                exact = torch.stack([x.to(torch.float64) for x in inputs]).sum(0)
                bound = 2e-2 if dtype in (torch.float16, torch.bfloat16) else 1e-6
                largest = max(x.to(torch.float64).abs().max().item() for x in inputs)
                if (tensor.to(torch.float64) - exact).abs().max().item() > bound * largest * world_size:
                    wrong.append(name)
            elif not torch.equal(tensor, torch.stack(inputs).sum(0).to(dtype)):
                wrong.append(name)
            digests[name] = digest(tensor)
    Path(options.folder, f"rank{rank}.json").write_text(json.dumps({"digests": digests, "wrong": wrong}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
