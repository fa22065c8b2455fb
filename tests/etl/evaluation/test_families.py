"""What the output of a model is, by the loss of its recipe."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn
from torch.nn import functional

from tests.trainer import datasets
from trainyard.etl.evaluation import families
from trainyard.etl.evaluation.families import choose_families
from trainyard.etl.metrics.classification import Classification
from trainyard.etl.scoring.worker_call import call_in_worker
from trainyard.schemas import model_artifact
from trainyard.schemas.datasets.manifest import Column
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.recipe import Recipe

pytestmark = pytest.mark.spark


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
    spark: Any, tmp_path: Path, loss: str, classes: int | None, link: str, ignored: int | None
) -> None:
    columns = datasets.blobs(100)
    dataset = datasets.write(tmp_path / "dataset", {"train": columns | {"label": np.asarray(columns["label"]) % 2}})
    recipe = {"loss": loss, "classes": classes}
    uri = str(tmp_path / "model")
    fit("tests.etl.recipes:with_loss", recipe_params=recipe, dataset=dataset, model=uri, epochs=1)
    artifact = model_artifact.read_current(uri)
    assert artifact.label
    choose = partial(choose_families, uri, artifact.to_json(), "", artifact.label, ["accuracy"])
    _, family = call_in_worker(spark, choose)  # torch has one thread in a worker
    assert isinstance(family, Classification)
    assert (family.link, family.ignored) == (link, ignored)


@pytest.mark.parametrize(
    ("loss", "link"),
    [
        (nn.PoissonNLLLoss(), "exp"),
        (nn.PoissonNLLLoss(log_input=False), "none"),
        (functional.poisson_nll_loss, "exp"),
        (partial(functional.poisson_nll_loss, full=True), "exp"),
        (partial(functional.poisson_nll_loss, log_input=False), "none"),
    ],
)
def test_the_output_for_a_poisson_loss_is_the_logarithm_of_a_rate_unless_log_input_is_false(
    loss: Any, link: str
) -> None:
    recipe = Recipe(model=nn.Linear(8, 1), features="x", label="count", loss=loss)
    assert families._build_output_spec(recipe, (), Column(name="count", kind="scalar", type="float")).link == link
