"""Train a small convolutional classifier on scikit-learn's handwritten digits with PyTorch DDP.

    torchrun --nproc-per-node 4 examples/train_digits.py --epochs 12

The 1,797 images of 8 x 8 pixels ship inside scikit-learn; nothing is downloaded.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def datasets(seed: int) -> tuple[TensorDataset, TensorDataset]:
    """Training and test set: images float32 [N, 1, 8, 8] in 0..1, labels int64 [N]."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(digits.target, dtype=torch.int64)
    train, test = train_test_split(
        range(len(labels)), test_size=0.2, random_state=seed, stratify=digits.target
    )
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def classifier() -> nn.Module:
    """Two convolutions and two linear layers, about 150,000 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorDataset) -> float:
    """Share of right answers on this rank's part of `data`, averaged over all ranks."""
    model.eval()
    images, labels = data.tensors
    rank, world_size = dist.get_rank(), dist.get_world_size()
    mine = slice(rank, None, world_size)
    right = (model(images[mine]).argmax(1) == labels[mine]).sum()
    counts = torch.stack([right, torch.tensor(len(labels[mine]))])
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def train(options: argparse.Namespace) -> None:
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    train_set, test_set = datasets(options.seed)
    sampler = DistributedSampler(train_set, seed=options.seed, drop_last=True)
    loader = DataLoader(train_set, batch_size=options.batch_size, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(classifier())
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    loss_function = nn.CrossEntropyLoss()
    losses: list[float] = []
    accuracies: list[float] = []
    started = time.perf_counter()
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for images, labels in loader:
            optimizer.zero_grad()
            loss = loss_function(model(images), labels)
            loss.backward()
            optimizer.step()
            mean_loss = loss.detach().clone()
            dist.all_reduce(mean_loss)
            losses.append(mean_loss.item() / world_size)
        accuracies.append(accuracy(model, test_set))
        if rank == 0:
            print(
                f"epoch {epoch + 1:2d}/{options.epochs}  loss {losses[-1]:.4f}"
                f"  test accuracy {accuracies[-1]:.2%}",
                flush=True,
            )
    if rank == 0 and options.metrics:
        record = {"losses": losses, "accuracies": accuracies, "seconds": time.perf_counter() - started}
        Path(options.metrics).write_text(json.dumps(record))
    dist.barrier()  # no rank closes its connections while another still uses them
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epochs", type=int, default=12, help="passes over the images (default: 12)")
    parser.add_argument("--batch-size", type=int, default=16, help="images per worker and step (default: 16)")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate (default: 0.05)")
    parser.add_argument("--seed", type=int, default=1, help="of weights and order of images (default: 1)")
    parser.add_argument("--metrics", metavar="FILE", help="write losses and accuracies as JSON")
    train(parser.parse_args())


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
