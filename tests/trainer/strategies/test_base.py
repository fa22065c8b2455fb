"""The bytes of a collective, and the state of a group of another size."""

from __future__ import annotations

from unittest import mock

import pytest
import torch

from tests.trainer.workers import Workers
from trainyard.trainer.strategies import base
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


def merge(world: World, former: int, added: int) -> tuple[list[int], dict[str, list[float]]]:
    """Merge the states of `former` workers; return whose state this one has read, and the mean."""
    read: list[int] = []

    def read_state(rank: int) -> dict[str, torch.Tensor]:
        read.append(rank)
        return {"residual": torch.tensor([rank**2, 1.0, rank]), "steps": torch.tensor([rank], dtype=torch.float64)}

    with mock.patch.object(base, "ADDED_ELEMENTS", added):
        merged = merge_rank_states(read_state, former, world)
    return read, {name: tensor.tolist() for name, tensor in merged.items()}


@pytest.mark.ranks
@pytest.mark.parametrize(("former", "parts"), [(1, [[0], []]), (3, [[0, 2], [1]]), (5, [[0, 2, 4], [1, 3]])])
def test_a_group_of_another_size_gets_the_mean_of_states_of_which_each_worker_reads_a_part(
    pair: Workers, former: int, parts: list[list[int]]
) -> None:
    """Adding up two elements at a time leaves a last piece of one."""
    results = pair(merge, former, 2)
    assert [read for read, _ in results] == parts
    squares, mean = sum(rank**2 for rank in range(former)) / former, (former - 1) / 2
    for _, merged in results:
        assert merged["residual"] == pytest.approx([squares, 1.0, mean])
        assert merged["steps"] == pytest.approx([mean])


def test_a_single_worker_gets_the_mean_of_all_states() -> None:
    assert merge(World(), 3, 2) == ([0, 1, 2], {"residual": pytest.approx([5 / 3, 1.0, 1.0]), "steps": [1.0]})


def test_a_strategy_without_a_state_of_each_worker_has_none_to_merge() -> None:
    assert merge_rank_states(lambda rank: {}, 4, World()) == {}
