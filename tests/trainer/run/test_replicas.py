"""Workers whose models are not the same any more end with the first tensor that differs, and its cause."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.trainer.runs import RECIPES, STRATEGIES
from tests.trainer.workers import Workers
from trainyard.errors import TrainyardError
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.run.replicas import compute_digests
from trainyard.trainer.world import World


@pytest.fixture(scope="module")
def two_workers() -> Iterator[Workers]:
    with Workers(2) as workers:
        yield workers


def train(world: World, batches: str, model: str, strategy: str, how: str) -> tuple[str, list[str]]:
    """Return the error and the warnings. In the last batch of an epoch workers have 3 and 2 micro-batches."""
    try:
        fitted = fit(
            f"{RECIPES}:unequal", dataset=batches, model=model, world=world, strategy=STRATEGIES[strategy], epochs=2,
            batch_size=33, micro_batches=3, recipe_params={"how": how},
        )  # fmt: skip
    except TrainyardError as error:
        return str(error), []
    return "", fitted.warnings


@pytest.mark.ranks
@pytest.mark.parametrize("strategy", ["allreduce", "horovod"])
def test_weights_that_forward_assigns_end_the_training(
    two_workers: Workers, batches: str, tmp_path: Path, strategy: str
) -> None:
    results = two_workers(train, batches, str(tmp_path / "model"), strategy, "assign")
    for error, _ in results:
        assert (
            "do not have the same model any more: since the start, 'bias' of rank 1 differs from that of rank 0 by "
            in error
        )
        assert "forward() assigns weights" in error
    assert results[0] == results[1]
    assert not (tmp_path / "model" / "model.json").exists()


@pytest.mark.ranks
def test_a_parameter_that_is_unfrozen_is_named(two_workers: Workers, batches: str, tmp_path: Path) -> None:
    for error, _ in two_workers(train, batches, str(tmp_path / "model"), "allreduce", "unfreeze"):
        assert error.startswith("requires_grad of 'bias' changed while the model trains.")


@pytest.mark.ranks
def test_an_optimizer_that_draws_random_numbers_changes_all_replicas_alike(
    two_workers: Workers, batches: str, tmp_path: Path
) -> None:
    assert [error for error, _ in two_workers(train, batches, str(tmp_path / "model"), "allreduce", "noise")] == [
        "",
        "",
    ]


@pytest.mark.ranks
def test_replicas_that_differ_by_rounding_are_made_equal_with_a_warning(
    two_workers: Workers, batches: str, tmp_path: Path
) -> None:
    for error, warnings in two_workers(train, batches, str(tmp_path / "model"), "allreduce", "round"):
        assert not error
        assert [text for text in warnings if "'weight', differed between workers by rounding" in text]


@pytest.mark.ranks
@pytest.mark.parametrize("strategy", ["averaging", "threshold", "diloco"])
def test_a_strategy_that_shares_weights_has_no_other_differences(
    two_workers: Workers, batches: str, tmp_path: Path, strategy: str
) -> None:
    for error, warnings in two_workers(train, batches, str(tmp_path / "model"), strategy, "assign"):
        assert not error and not [text for text in warnings if "differed between workers" in text]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(7.0), torch.arange(6).reshape(2, 3).t(), torch.tensor(2.5), torch.tensor([True, False]),
        torch.arange(5, dtype=torch.float16), torch.arange(5, dtype=torch.bfloat16), torch.tensor([1 + 2j]),
        torch.arange(9, dtype=torch.int16),
    ],
    ids=lambda tensor: f"{tensor.dtype} {tuple(tensor.shape)}",
)  # fmt: skip
def test_a_digest_depends_on_every_value(tensor: torch.Tensor) -> None:
    flat = tensor.flatten()
    changed = []
    for place in range(flat.numel()):
        other = flat.clone()
        other[place] = ~other[place] if other.dtype == torch.bool else other[place] + 1
        changed.append(other)
    same, *others = compute_digests([tensor, *changed])
    assert [same] == compute_digests([tensor.clone()])
    assert same not in others


def test_a_digest_depends_on_the_places_of_values() -> None:
    first, second = compute_digests([torch.tensor([1.0, 2.0, 3.0]), torch.tensor([3.0, 2.0, 1.0])])
    assert first != second


def test_an_empty_tensor_has_a_digest() -> None:
    assert compute_digests([torch.zeros(0, 3)]) == [0]
