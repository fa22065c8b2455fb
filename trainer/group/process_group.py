"""End the connections of a worker to the others."""

from __future__ import annotations

import sys


def end_process_group(abort: bool) -> None:
    """End the process group, if there is one.

    Args:
        abort: Whether to cancel collectives in progress, as after a failure. Otherwise NCCL waits until they end, and
            so for the other workers, which may wait for this one.
    """
    dist = sys.modules.get("torch.distributed")  # torch may be what cannot be imported
    if dist is None or not dist.is_initialized():
        return
    if abort and hasattr(dist.group.WORLD, "abort"):
        dist.group.WORLD.abort()
    elif abort:  # before torch 2.8
        dist.distributed_c10d._abort_process_group()
    dist.destroy_process_group()
