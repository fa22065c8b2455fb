"""The bytes of a collective."""

from __future__ import annotations

from trainyard.trainer.strategies.base import ring_allgather, ring_allreduce


def test_bytes_over_a_ring() -> None:
    assert [ring_allreduce(1200, workers) for workers in (1, 2, 3, 4)] == [0, 1200, 1600, 1800]
    assert [ring_allgather(100, workers) for workers in (1, 2, 4)] == [0, 100, 300]
