"""The GPUs that workers use."""

from __future__ import annotations

import pytest

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


def test_workers_under_torchrun_share_a_gpu_if_their_host_has_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "1"}
    for name, value in (variables | {"MASTER_ADDR": "127.0.0.1"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.set_device", lambda device: None)
    monkeypatch.setattr("torch.distributed.destroy_process_group", lambda: None)
    backends: list[str] = []
    monkeypatch.setattr("torch.distributed.init_process_group", backends.append)
    for count, gpu in ((1, 0), (2, 1)):
        monkeypatch.setattr("torch.cuda.device_count", lambda count=count: count)
        with init_world(None) as world:
            assert world.gpu == gpu
    assert backends == ["gloo", "nccl"]
