"""Train a generative adversarial network: two networks and two optimizers, in a loop of its own, on each worker."""

from __future__ import annotations

import argparse
import io

import torch
import torch.distributed as dist
from torch import Tensor, nn, optim
from torch.nn.parallel import DistributedDataParallel

from gan.networks import LATENT, discriminator, frechet_distance, generator
from trainyard.files import storage
from trainyard.trainer import Dataset

BATCH = 64
"""Rows of a batch, over all workers."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("dataset")
    parser.add_argument("model")
    parser.add_argument("--epochs", type=int, default=40)
    args = parser.parse_args()

    dist.init_process_group("gloo")  # "nccl" on GPUs
    rank, world = dist.get_rank(), dist.get_world_size()
    draw, judge = DistributedDataParallel(generator()), DistributedDataParallel(discriminator())
    torch.manual_seed(rank)  # each worker draws other digits
    optimizers = [optim.Adam(network.parameters(), 1e-3, (0.5, 0.999)) for network in (draw, judge)]
    rows = Dataset(args.dataset, columns=["image"], batch_size=BATCH, rank=rank, world=world)
    for epoch in range(args.epochs):
        images = []
        for batch in rows:
            real = batch["image"].flatten(1) / 8 - 1
            drawn = draw(torch.randn(max(len(real), 2), LATENT))  # BatchNorm needs two rows
            train_generator(optimizers[0], judge, drawn)
            train_discriminator(optimizers[1], judge, real, drawn.detach())
            images.append((real, drawn.detach()))
        if rank == 0 and (epoch + 1) % 10 == 0:
            distance = frechet_distance(*map(torch.cat, zip(*images, strict=True)))
            print(f"epoch {epoch + 1}: distance of drawn and real digits {distance:.2f}")
    if rank == 0:
        save(draw.module, args.model)
    dist.destroy_process_group()


def train_generator(optimizer: optim.Optimizer, judge: DistributedDataParallel, drawn: Tensor) -> None:
    """Take a step towards images that the discriminator takes for real ones."""
    logits = judge.module(drawn)  # its own gradients are discarded, so DDP does not average them
    optimizer.zero_grad()
    nn.functional.binary_cross_entropy_with_logits(logits, torch.ones_like(logits)).backward()
    optimizer.step()


def train_discriminator(
    optimizer: optim.Optimizer, judge: DistributedDataParallel, real: Tensor, drawn: Tensor
) -> None:
    """Take a step towards telling real from drawn images."""
    logits = judge(torch.cat([real, drawn]))
    truth = torch.cat([torch.ones(len(real), 1), torch.zeros(len(drawn), 1)])
    optimizer.zero_grad()
    nn.functional.binary_cross_entropy_with_logits(logits, truth).backward()
    optimizer.step()


def save(network: nn.Module, uri: str) -> None:
    """Write the weights of a network to a file of any storage."""
    weights = io.BytesIO()
    torch.save(network.state_dict(), weights)
    storage.replace(uri, weights.getvalue())


if __name__ == "__main__":
    main()
