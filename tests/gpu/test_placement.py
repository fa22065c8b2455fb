"""The device of a worker: the GPU that Spark assigned to its task, or one after the other."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.gpu import group
from tests.gpu.group import Task
from trainyard.planning.placement import DISCOVERY
from trainyard.trainer.connections.process_group import end_process_group
from trainyard.trainer.connections.rendezvous import join_group
from trainyard.trainer.world import init_world

pytestmark = [pytest.mark.full, pytest.mark.slow, pytest.mark.ranks]


def join(task: Task) -> tuple[str, str, float]:
    """Return the device of a worker, the one that torch uses by default, and a sum over the group."""
    world = join_group(task, task.driver, timedelta(minutes=2), 1)
    ranks = world.sum(torch.tensor(float(world.rank), device=world.device))
    default = torch.ones(1, device=world.device.type).device
    end_process_group(abort=False)
    return str(world.device), str(default) if default.type == "cuda" else "cpu", ranks.item()


@pytest.mark.parametrize("assigned", [True, False])
def test_each_worker_computes_on_its_own_gpu(device: str, assigned: bool) -> None:
    size = torch.cuda.device_count() if device == "cuda" else group.WORKERS
    numbers = list(reversed(range(size))) if assigned else list(range(size))
    gpus = [[str(number)] for number in numbers] if assigned and device == "cuda" else None
    results = group.run(device, size, join, gpus=gpus)
    names = [f"cuda:{number}" if device == "cuda" else "cpu" for number in numbers]
    assert results == [(name, name, sum(range(size))) for name in names]


@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_more_workers_than_gpus_share_them(device: str) -> None:
    """NCCL refuses such a group, so that it communicates by gloo."""
    count = torch.cuda.device_count()
    results = group.run(device, count + 1, join)
    names = [f"cuda:{rank % count}" for rank in range(count + 1)]
    assert results == [(name, name, sum(range(count + 1))) for name in names]


@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_a_worker_that_sees_only_its_gpu_counts_it_from_0(device: str) -> None:
    """As in a container that YARN isolates: Spark's address is that of the container."""
    last = torch.cuda.device_count() - 1
    assert group.run(device, 1, join, gpus=[["0"]], visible=str(last)) == [("cuda:0", "cuda:0", 0)]


def start_under_torchrun(task: Task, size: int, port: str) -> tuple[str, str, float]:
    rank = str(task.partitionId())
    os.environ |= {
        "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size),
        "GROUP_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }  # fmt: skip
    with init_world(None) as world:
        ranks = world.sum(torch.tensor(float(world.rank), device=world.device))
        return str(world.device), dist.get_backend(), ranks.item()


@pytest.mark.parametrize("sharing", [0, 1])
def test_workers_under_torchrun_take_turns(device: str, sharing: int) -> None:
    """With a worker for each GPU, also a group of one, the process group is of NCCL; with one more it cannot be."""
    count = torch.cuda.device_count() if device == "cuda" else group.WORKERS
    size = count + sharing
    store: Any = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    results = group.run(device, size, start_under_torchrun, size, str(store.port))
    backend = "nccl" if device == "cuda" and not sharing else "gloo"
    names = [f"cuda:{rank % count}" if device == "cuda" else "cpu" for rank in range(size)]
    assert results == [(name, backend, sum(range(size))) for name in names]


@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_spark_and_torch_find_the_same_gpus(device: str) -> None:
    """The script that each executor runs, where nothing hides a GPU from torch."""
    found = subprocess.run(["sh", str(DISCOVERY)], capture_output=True, text=True, check=True).stdout
    assert json.loads(found) == {"name": "gpu", "addresses": [str(n) for n in range(torch.cuda.device_count())]}
