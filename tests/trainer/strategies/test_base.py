"""The bytes of a collective, and the state of a group of another size."""

from __future__ import annotations

import pytest
import torch

from trainyard.trainer.strategies.base import merge_rank_states, ring_allgather, ring_allreduce
from trainyard.trainer.world import World


def test_bytes_over_a_ring() -> None:
    assert [ring_allreduce(1200, workers) for workers in (1, 2, 3, 4)] == [0, 1200, 1600, 1800]
    assert [ring_allgather(100, workers) for workers in (1, 2, 4)] == [0, 100, 300]


def test_a_group_of_the_same_size_reads_the_own_state_only() -> None:
    read: list[int] = []

    def read_state(rank: int) -> dict[str, torch.Tensor]:
        read.append(rank)
        return {"residual": torch.tensor([float(rank)])}

    assert merge_rank_states(read_state, 3, World(1, 3))["residual"].tolist() == [1.0]
    assert read == [1]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_a_group_of_another_size_gets_the_mean_of_all_states(workers: int) -> None:
    states = [{"residual": torch.tensor([float(rank**2), 1.0])} for rank in range(workers)]
    merged = merge_rank_states(states.__getitem__, workers, World(2, 3))
    expected = sum(rank**2 for rank in range(workers)) / workers
    assert merged["residual"].tolist() == pytest.approx([expected, 1.0])
    assert [state["residual"][0].item() for state in states] == [float(rank**2) for rank in range(workers)]


def test_a_strategy_without_a_state_of_each_worker_has_none_to_merge() -> None:
    assert merge_rank_states(lambda rank: {}, 4, World(0, 2)) == {}
