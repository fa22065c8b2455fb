"""The GPUs that workers use."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from tests.trainer.workers import Workers
from trainyard.trainer.world import Gpus, World, init_world, select_gpu, select_gpus


@pytest.mark.parametrize(
    ("assigned", "local_rank", "visible", "gpu"),
    [
        (["0"], 1, 1, 0),  # two containers of a node, each isolated with one GPU
        (["1"], 0, 2, 1),
        (["2", "3"], 0, 4, 2),
        (["2"], 0, 1, 0),  # the container sees only its GPU, which has the number of the node
        ([], 1, 2, 1),
        ([], 2, 2, 0),
        ([], 1, 0, 0),
    ],
)
def test_a_worker_uses_its_assigned_gpu_or_takes_turns(
    assigned: list[str], local_rank: int, visible: int, gpu: int
) -> None:
    assert select_gpu(assigned, local_rank, visible) == gpu


@pytest.mark.parametrize(
    ("workers", "indices", "shares"),
    [
        ([Gpus("a", [], ["x", "y"]), Gpus("b", [], ["z"]), Gpus("a", [], ["x", "y"])], [0, 0, 1], False),
        ([Gpus("a", [], ["x"]), Gpus("a", [], ["x"])], [0, 0], True),  # a machine with one GPU for two workers
        ([Gpus("a", ["0"], ["x"]), Gpus("a", ["0"], ["y"])], [0, 0], False),  # two isolated containers
        ([Gpus("a", ["1"], ["x", "y"]), Gpus("a", ["0"], ["x", "y"])], [1, 0], False),
        ([Gpus("a", [], ["x"]), Gpus("b", [], []), Gpus("b", [], [])], [0, 0, 0], False),  # hosts without a GPU
        ([Gpus("a", [], [])], [0], False),
    ],
)
def test_workers_know_the_gpu_of_each_and_whether_any_is_shared(
    workers: list[Gpus], indices: list[int], shares: bool
) -> None:
    assert select_gpus(workers) == (indices, shares)


def test_workers_that_share_a_gpu_do_not_use_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert (World(0, 2).backend, World(0, 2, shares_gpu=True).backend) == ("nccl", "gloo")


@pytest.mark.parametrize(
    ("visible", "gpus", "backend"),
    [
        ([["x"], ["x"]], [0, 0], "gloo"),
        ([["x", "y"], ["x", "y"]], [0, 1], "nccl"),
        ([["x"], ["y"]], [0, 0], "nccl"),  # a launcher that lets each process see its own GPU
    ],
)
def test_workers_under_torchrun_tell_each_other_their_gpus(
    monkeypatch: pytest.MonkeyPatch, visible: list[list[str]], gpus: list[int], backend: str
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("GROUP_WORLD_SIZE", "1")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.set_device", lambda device: None)
    backends: list[str] = []
    monkeypatch.setattr("torch.distributed.init_process_group", lambda name, **_: backends.append(name))
    monkeypatch.setattr("torch.distributed.destroy_process_group", lambda: None)
    store = dist.HashStore()
    found = []

    def join(rank: int) -> None:
        monkeypatch.setattr("trainyard.trainer.world._rendezvous", lambda *_: (store, rank, 2))
        monkeypatch.setattr("trainyard.trainer.world.list_gpus", lambda: visible[rank])
        with init_world(None) as world:
            found.append(world.gpu)

    other = Gpus(socket.gethostname(), [], visible[1])
    dist.PrefixStore("trainyard/1", store).set("gpus/1", json.dumps(other))
    join(0)
    join(1)
    assert (found, backends) == (gpus, [backend] * 2)


def describe(_: World) -> tuple[World, bool]:
    """Return the world that the process group of a script gives, and whether the group stays."""
    with init_world(None) as world:
        pass
    return world, dist.is_initialized()


@pytest.mark.ranks
def test_the_process_group_of_a_script_is_used_and_left() -> None:
    with Workers(2) as workers:
        assert workers(describe) == [(World(rank, 2), True) for rank in range(2)]


def get_timeout(world: World, minutes: int) -> timedelta:
    group = replace(world, timeout=timedelta(minutes=minutes)).create_group()
    assert group is not None
    return group._get_backend(torch.device("cpu")).options._timeout  # type: ignore[no-any-return, attr-defined]


@pytest.mark.ranks
def test_a_further_group_waits_as_long_as_the_first_one_and_not_shorter_than_by_default() -> None:
    with Workers(2) as workers:
        assert workers(get_timeout, 120) == [timedelta(minutes=120)] * 2
        assert workers(get_timeout, 1) == [timedelta(minutes=30)] * 2
