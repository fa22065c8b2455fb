"""The GPU that a worker uses."""

from __future__ import annotations

import pytest

from trainyard.trainer.world import select_gpu


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
