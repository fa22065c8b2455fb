"""What the device can do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from bench.training.gpu.loops import synchronize
from trainyard.trainer.world import World


def measure_limits(small: bool) -> float:
    """Print what the device can do, and return its operations per second in bfloat16."""
    device, size = World().device, 256 if small else 8192
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    seconds = time_best(lambda: a @ b)
    operations = 2 * size**3 / seconds
    print(f"matmul, {size} x {size} in bfloat16: {operations / 1e12:.3g} TFLOP/s")
    if device.type == "cuda":
        host = torch.empty((64 if small else 256) << 20, dtype=torch.uint8, pin_memory=True)
        target = torch.empty_like(host, device=device)
        seconds = time_best(lambda: target.copy_(host, non_blocking=True))
        print(f"copy of pinned memory to the device: {host.nbytes / seconds / 1e9:.1f} GB/s")
        seconds = time_best(lambda: target.clone())
        print(f"copy on the device: {2 * host.nbytes / seconds / 1e9:.0f} GB/s read and written")
    return operations


def time_best(function: Callable[[], Any], calls: int = 10) -> float:
    """Return the seconds of one call, of the best of five rounds."""
    best = float("inf")
    for _ in range(5):
        synchronize()
        began = time.perf_counter()
        for _ in range(calls):
            function()
        synchronize()
        best = min(best, (time.perf_counter() - began) / calls)
    return best
