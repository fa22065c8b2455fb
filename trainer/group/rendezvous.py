"""Let the workers of a barrier stage meet: one exchange of addresses, then the process group."""

from __future__ import annotations

import json
import os
import socket
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass


def own_address(context: Any) -> str:
    """Where other ranks reach this one: a host."""
    own = context.getTaskInfos()[context.partitionId()].address
    return os.environ.get("SPARK_LOCAL_IP") or str(own.split(":")[0])


def join_group(context: Any, timeout: timedelta) -> Any:
    """Meet the other ranks: one exchange of addresses through the barrier, then the process group."""
    import torch
    import torch.distributed as dist

    from trainyard.trainer.world import World, select_gpu

    rank = context.partitionId()
    tasks = context.getTaskInfos()
    host = own_address(context)
    with socket.socket() as probe:
        probe.bind(("", 0))
        mine = {"host": host, "port": probe.getsockname()[1]}
        peers = [json.loads(message) for message in context.allGather(json.dumps(mine))]
    neighbours = [r for r in range(len(tasks)) if peers[r]["host"] == host]
    assigned = context.resources().get("gpu")
    addresses = assigned.addresses if assigned else []
    gpu = select_gpu(addresses, neighbours.index(rank), torch.cuda.device_count())
    world = World(rank, len(tasks), gpu, host)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // len(neighbours)))
    if world.device.type == "cuda":
        torch.cuda.set_device(world.device)
    if world.size > 1:
        leader = f"tcp://{peers[0]['host']}:{peers[0]['port']}"
        dist.init_process_group(world.backend, leader, timeout, world.size, rank)
    return world
