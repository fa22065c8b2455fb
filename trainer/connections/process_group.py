"""Create the process group of a worker, and end its connections to the others."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainyard.trainer.world import World

_store: Any = None
"""The store of the process group. torch keeps only the part of it in C++, which calls the one in Python."""


def create_process_group(world: World, store: Any, timeout: timedelta) -> None:
    """Connect to the other workers, and check that they are members of the group.

    Args:
        world: This worker.
        store: The store by which the workers exchange their addresses.
        timeout: The timeout of collectives.

    Raises:
        TrainyardError: Something else is at the other end of a connection.
    """
    import torch
    import torch.distributed as dist

    global _store
    _store = store
    dist.init_process_group(world.backend, store=store, rank=world.rank, world_size=world.size, timeout=timeout)
    if world.membership:
        world.membership.verify(world.device if world.backend == "nccl" else torch.device("cpu"))


def end_process_group(abort: bool) -> None:
    """End the process group, if there is one.

    Args:
        abort: Whether to cancel collectives in progress, as after a failure. Otherwise NCCL waits until they end, and
            so for the other workers, which may wait for this one.
    """
    global _store
    dist = sys.modules.get("torch.distributed")  # torch may be what cannot be imported
    if dist is None or not dist.is_initialized():
        return
    if abort:
        dist.group.WORLD.abort()
    dist.destroy_process_group()
    if _store is not None:
        _store.close()
    _store = None
