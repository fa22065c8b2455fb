"""A strategy from outside: the class that a page of the documentation has, which no module here knows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.docs.pages import ROOT, blocks
from tests.trainer.recipes import plain
from tests.trainer.runs import RECIPES
from tests.trainer.workers import Workers
from trainyard.errors import TrainyardError
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.artifacts.trained_model import load_model
from trainyard.trainer.world import World

RATE, SCALE = 0.1, 0.5
"""The learning rate of the recipe, and the length of a vote."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the module of the page."""
    [block] = [one for one in blocks(ROOT / "docs/how-to/training/strategy.md") if "class MajorityVote" in one.text]
    folder = tmp_path_factory.mktemp("dags")
    (folder / "majority.py").write_text(block.text)
    return folder


def train(world: World, folder: Path, batches: str, model: str) -> tuple[list[dict[str, float]], int]:
    sys.path.insert(0, str(folder))
    strategy = {"name": "majority:MajorityVote", "params": {"scale": str(SCALE)}}
    fitted = fit(
        f"{RECIPES}:plain", dataset=batches, model=model, world=world, strategy=strategy, epochs=2, batch_size=40
    )
    return fitted.history.epochs, fitted.bytes_sent


@pytest.mark.ranks
def test_workers_take_the_steps_of_the_class(pair: Workers, folder: Path, batches: str, tmp_path: Path) -> None:
    """Two votes are even or a majority, so that each step is a vote of one length up or down, or none."""
    (first, sent), (second, _) = pair(train, folder, batches, str(tmp_path))
    torch.manual_seed(0)
    before, after = plain().model.state_dict(), load_model(str(tmp_path)).network.model.state_dict()
    votes = {name: (after[name] - before[name]) / (RATE * SCALE) for name in before}
    assert all(torch.allclose(each, each.round(), atol=1e-3) for each in votes.values())
    assert any(each.round().any() for each in votes.values())
    assert first == second and first[-1]["loss"] < first[0]["loss"] and sent > 0


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("majority:Missing", "strategy 'majority:Missing' cannot be imported: AttributeError"),
        ("elsewhere:MajorityVote", "cannot be imported: ModuleNotFoundError: No module named 'elsewhere'"),
        ("majority:nullcontext", "is no strategy. Write `class nullcontext(Strategy)`"),
        ({"name": "majority:MajorityVote", "params": {"length": 2}}, "unexpected keyword argument 'length'"),
        ({"name": "majority:MajorityVote", "params": {"scale": "long"}}, "strategy.params: scale='long' is not of"),
        ({"name": "majority:MajorityVote", "scale": 2}, "own.scale is not a known option"),
        ({"name": "majority:Majority-Vote"}, "write it as 'module:name'"),
    ],
)
def test_a_class_that_is_no_strategy_is_refused_before_training(
    folder: Path, batches: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: Any, message: str
) -> None:
    monkeypatch.syspath_prepend(str(folder))
    with pytest.raises(TrainyardError) as error:
        fit(f"{RECIPES}:linear", dataset=batches, model=str(tmp_path / "model"), strategy=strategy)
    assert message in str(error.value)
    assert not (tmp_path / "model").exists()


def test_a_class_trains_with_the_precisions_that_it_declares(
    folder: Path, batches: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "mean.py").write_text(
        "from majority import MajorityVote\n\n\nclass Mean(MajorityVote):\n    precisions = ('bfloat16', 'float16')\n"
    )
    monkeypatch.syspath_prepend(str(folder))

    def train_with(name: str, precision: str) -> None:
        model = str(tmp_path / "model")
        fit(f"{RECIPES}:plain", dataset=batches, model=model, strategy=name, precision=precision, epochs=1)

    with pytest.raises(TrainyardError, match=r"with precision='float32' or 'bfloat16', and not with 'float16'; write"):
        train_with("majority:MajorityVote", "float16")
    with pytest.raises(TrainyardError, match=r"precisions = \('bfloat16', 'float16', 'float32'\)` into the class"):
        train_with("mean:Mean", "float32")
    assert not (tmp_path / "model").exists()
    train_with("mean:Mean", "float16")
    assert (tmp_path / "model").exists()
