"""What the output of a model is, by the loss of its recipe."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.trainer import datasets
from trainyard.etl.evaluation.evaluated_model import EvaluatedModel
from trainyard.etl.metrics.classification import Classification
from trainyard.trainer.loop.fit import fit


@pytest.mark.parametrize(
    ("loss", "classes", "link", "ignored"),
    [
        ("BCELoss", None, "none", None),
        ("binary_cross_entropy", None, "none", None),
        ("partial binary_cross_entropy", None, "none", None),
        ("binary_cross_entropy_with_logits", None, "sigmoid", None),
        ("NLLLoss", 3, "exp", -100),
        ("nll_loss", 3, "exp", -100),
        ("partial nll_loss", 3, "exp", 1),
        ("CrossEntropyLoss", 3, "softmax", 1),
    ],
)
def test_the_loss_says_what_the_output_is(
    tmp_path: Path, loss: str, classes: int | None, link: str, ignored: int | None
) -> None:
    columns = datasets.blobs(100)
    dataset = datasets.write(tmp_path / "dataset", {"train": columns | {"label": np.asarray(columns["label"]) % 2}})
    recipe = {"loss": loss, "classes": classes}
    fit("tests.etl.recipes:with_loss", recipe_params=recipe, dataset=dataset, model=str(tmp_path / "model"), epochs=1)
    _, family = EvaluatedModel.load(str(tmp_path / "model"), ["accuracy"], {}).families
    assert isinstance(family, Classification)
    assert (family.link, family.ignored) == (link, ignored)
