"""Three workers check a model on rank 0, with each strategy; none of them waits for one that has failed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.trainer.runs import STRATEGIES
from tests.trainer.workers import Workers
from trainyard.errors import TrainyardError
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.artifacts import weights
from trainyard.trainer.model.artifacts.trained_model import load_model
from trainyard.trainer.world import World

pytestmark = pytest.mark.ranks

STRATEGY_NAMES = ("allreduce", "averaging", "threshold", "diloco", "fsdp", "horovod")


@pytest.fixture(scope="module")
def three_workers() -> Iterator[Workers]:
    with Workers(3) as workers:
        yield workers


def train(
    world: World, batches: str, model: str, strategy: str, kind: str, epoch_models: bool = False,
    recipe: str = "first_layer",
) -> str:  # fmt: skip
    """Return the error, or the warnings."""
    try:
        fitted = fit(
            f"tests.trainer.verification.recipes:{recipe}", dataset=batches, model=model, world=world,
            strategy=STRATEGIES[strategy], epochs=1, batch_size=100, recipe_params={"kind": kind},
            epoch_models=epoch_models,
        )  # fmt: skip
    except TrainyardError as error:
        return str(error)
    return " ".join(fitted.warnings)


@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
def test_a_model_is_published_or_refused_by_rank_0(
    three_workers: Workers, batches: str, tmp_path: Path, strategy: str
) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    assert three_workers(train, batches, str(right), strategy, "dropout", True) == ["", "", ""]
    assert (right / "model.json").exists() and (right / "epochs" / "001" / "model.json").exists()
    refused, *others = three_workers(train, batches, str(wrong), strategy, "annealed")
    assert "attribute 'temperature' is 0.59 in the trained model" in refused
    assert others == ["", ""] and not (wrong / "model.json").exists()


@pytest.mark.parametrize("strategy", ["allreduce", "fsdp"])
def test_all_workers_refuse_before_the_first_epoch(
    three_workers: Workers, batches: str, tmp_path: Path, strategy: str
) -> None:
    errors = three_workers(train, batches, str(tmp_path / "model"), strategy, "attribute")
    assert "before the first epoch" in errors[0] and errors == errors[:1] * 3


def test_all_workers_refuse_the_model_of_an_epoch(three_workers: Workers, batches: str, tmp_path: Path) -> None:
    errors = three_workers(train, batches, str(tmp_path / "model"), "allreduce", "annealed", True)
    assert "'temperature'" in errors[0] and errors == errors[:1] * 3


@pytest.mark.parametrize("strategy", ["allreduce", "averaging", "threshold", "diloco"])
def test_weights_over_one_memory_stay_tied(three_workers: Workers, batches: str, tmp_path: Path, strategy: str) -> None:
    assert three_workers(train, batches, str(tmp_path / "model"), strategy, "tied", False, "views") == ["", "", ""]
    loaded = load_model(str(tmp_path / "model"))
    stored = weights.read(str(tmp_path / "model"), loaded.artifact)
    assert torch.equal(stored["decoder.weight"], stored["encoder.weight"].t())
