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
    if abort:
        dist.group.WORLD.abort()
    dist.destroy_process_group()
