"""Values that workers exchange: they arrive as they are, and run no code."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.workers import Workers
from trainyard.errors import TrainyardError
from trainyard.trainer import exchange
from trainyard.trainer.world import World

pytestmark = pytest.mark.ranks

VALUES: list[list[Any]] = [
    [None, "ä" * 100_000, 1.5],
    [{"a": (1, [2.0, None], True)}, {}, {3: "c"}],
    [Counter({0.5: 2}), Counter(), Counter({1.5: 1})],
    [torch.Size([2, 3]), torch.float16, torch.arange(5)],
]


def exchange_all(world: World, values: list[list[Any]]) -> list[tuple[Any, ...]]:
    return [
        (
            exchange.all_gather(of_ranks[world.rank]),
            exchange.gather(of_ranks[world.rank]),
            exchange.broadcast(of_ranks[world.rank]),
            exchange.scatter(of_ranks if world.is_main else None),
        )
        for of_ranks in values
    ]


def test_values_of_different_lengths_arrive_by_each_kind_of_exchange() -> None:
    with Workers(3) as workers:
        results = workers(exchange_all, VALUES)
    for rank, of_rank in enumerate(results):
        for values, (all_gathered, gathered, broadcast, scattered) in zip(VALUES, of_rank, strict=True):
            assert repr(all_gathered) == repr(values)
            assert repr(gathered) == (repr(values) if rank == 0 else "None")
            assert repr((broadcast, scattered)) == repr((values[0], values[rank]))


class Command:
    """Runs a command where it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def send_a_command(world: World, path: str) -> str:
    try:
        exchange.all_gather(Command(path) if world.rank == 1 else None)
    except pickle.UnpicklingError as error:
        return str(error)
    return ""


def send_too_much(world: World) -> str:
    exchange.MAX_BYTES = 10_000
    try:
        exchange.broadcast("a" * 20_000)
    except TrainyardError as error:
        return str(error)
    return ""


def test_a_value_that_would_run_code_is_refused(tmp_path: Path) -> None:
    with Workers(2) as workers:
        texts = workers(send_a_command, str(tmp_path / "ran"))
    assert all("Weights only load failed" in text for text in texts)
    assert not (tmp_path / "ran").exists()


def test_a_value_that_is_too_long_is_refused_by_all_workers() -> None:
    with Workers(2) as workers:
        assert all("bytes to the others; 10,000 are allowed" in text for text in workers(send_too_much))
