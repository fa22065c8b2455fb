"""Which GPU a rank computes on."""

from __future__ import annotations

import pytest

from trainyard.trainer.world import select_gpu


@pytest.mark.parametrize(
    ("assigned", "neighbour", "visible", "gpu"),
    [
        (["0"], 1, 1, 0),  # two containers of a node, each isolated with one GPU
        (["1"], 0, 2, 1),
        (["2", "3"], 0, 4, 2),
        ([], 1, 2, 1),
        ([], 2, 2, 0),
        ([], 1, 0, 0),
    ],
)
def test_an_assigned_gpu_wins_over_turns(assigned: list[str], neighbour: int, visible: int, gpu: int) -> None:
    assert select_gpu(assigned, neighbour, visible) == gpu
