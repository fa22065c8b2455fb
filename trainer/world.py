"""The world: which rank this process is, of how many, and on what device it computes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class World:
    """`local_rank` counts the ranks of one host; with CUDA it chooses the device."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", self.local_rank) if torch.cuda.is_available() else torch.device("cpu")

    @property
    def backend(self) -> str:
        return "nccl" if self.device.type == "cuda" else "gloo"

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """The element-wise sum of `values` over all ranks."""
        if self.size > 1:
            dist.all_reduce(values)
        return values
