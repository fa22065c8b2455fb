"""Random numbers of transforms: reproducible, and independent of those of the training loop."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.trainer import datasets
from trainyard.schemas.datasets import manifest as manifests
from trainyard.trainer.data.loader import Loader, build_order
from trainyard.trainer.data.mixture import build_reader
from trainyard.trainer.data.randomness import RANDOM_FUNCTIONS, SeededRandom
from trainyard.trainer.data.weights import build_weights
from trainyard.trainer.world import World

CALLS = {
    "rand": lambda: torch.rand(3),
    "rand_like": lambda: torch.rand_like(torch.ones(3)),
    "randint": lambda: torch.randint(9, (3,)),
    "randperm": lambda: torch.randperm(9),
    "normal": lambda: torch.normal(torch.zeros(3), torch.ones(3)),
    "bernoulli": lambda: torch.bernoulli(torch.full((20,), 0.5)),
    "multinomial": lambda: torch.ones(9).multinomial(4),
    "uniform_": lambda: torch.empty(3).uniform_(),
    "binomial": lambda: torch.binomial(torch.full((20,), 9.0), torch.full((20,), 0.5)),
    "gamma": lambda: torch.distributions.Gamma(torch.ones(3), torch.ones(3)).sample(),
    "beta": lambda: torch.distributions.Beta(torch.ones(3), torch.ones(3)).sample(),
    "exponential_": lambda: torch.empty(3).exponential_(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_seed_determines_the_numbers_and_the_global_generator_stays(name: str) -> None:
    before = torch.random.get_rng_state()
    values = []
    for seed in ((1, 2), (1, 2), (1, 3)):
        with SeededRandom(seed):
            values.append((CALLS[name](), CALLS[name]()))
    assert torch.equal(values[0][0], values[1][0]) and torch.equal(values[0][1], values[1][1])
    assert not torch.equal(values[0][0], values[2][0]) and not torch.equal(values[0][0], values[0][1])
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_generator_of_the_caller_is_used() -> None:
    with SeededRandom((1,)):
        drawn = torch.rand(3, generator=torch.Generator().manual_seed(5))
    assert torch.equal(drawn, torch.rand(3, generator=torch.Generator().manual_seed(5)))


def test_all_functions_take_a_generator() -> None:
    undocumented = {torch._standard_gamma, torch._sample_dirichlet, torch.binomial}
    assert all("generator" in str(function.__doc__) for function in RANDOM_FUNCTIONS - undocumented)


def test_other_threads_draw_from_the_global_generator() -> None:
    drawn: list[Tensor] = []
    torch.manual_seed(7)
    with SeededRandom((1,)):
        thread = threading.Thread(target=lambda: drawn.append(torch.rand(3)))
        thread.start()
        thread.join()
    torch.manual_seed(7)
    assert torch.equal(drawn[0], torch.rand(3))


def add_noise(columns: dict[str, Tensor]) -> dict[str, Tensor]:
    return columns | {"noise": torch.rand(len(columns["label"]))}


def read_noise(directory: Path, disturb: bool) -> list[float]:
    uri = str(directory)
    reader = build_reader(uri, manifests.read_current(uri), "train", ("label",))
    loader = Loader(reader, build_order(reader, 16, 0, True, None, None), transform=add_noise)
    noise: list[float] = []
    for batch in loader.epoch(1):
        if disturb:
            torch.manual_seed(batch.step)
            torch.rand(100)
        noise += batch.columns["noise"].tolist()
    return noise


def test_a_transform_draws_the_same_whatever_the_training_loop_draws(tmp_path: Path) -> None:
    datasets.write(tmp_path, {"train": datasets.blobs(200)})
    calm = read_noise(tmp_path, disturb=False)
    assert read_noise(tmp_path, disturb=True) == calm
    assert len(set(calm)) == 200, "each batch has its own numbers"


def decode(data: bytes) -> Any:
    return np.frombuffer(data, np.uint8).astype(np.float64)


def augment(row: Any, generator: np.random.Generator) -> Any:
    return row + generator.random(1) / 2


def test_a_row_that_is_drawn_twice_is_augmented_in_two_ways(tmp_path: Path) -> None:
    rows = {"file": [bytes([number]) for number in range(8)], "weight": np.array([1.0] * 7 + [93.0])}
    uri = datasets.write(tmp_path, {"train": rows})
    reader = build_reader(uri, manifests.read_current(uri), "train", ("file", "weight"))
    weights = build_weights(reader, None, "weight", World())
    loader = Loader(
        reader, build_order(reader, 4, 0, True, None, weights), decode={"file": decode},
        augment={"file": augment}, weights=weights,
    )  # fmt: skip
    drawn = np.concatenate([batch.columns["file"].numpy() for batch in loader.epoch(0)])
    heavy = drawn[np.floor(drawn[:, 0]) == 7]
    assert len(heavy) >= 6
    assert len(np.unique(heavy)) == len(heavy)
    again = np.concatenate([batch.columns["file"].numpy() for batch in loader.epoch(0)])
    assert np.array_equal(drawn, again)
