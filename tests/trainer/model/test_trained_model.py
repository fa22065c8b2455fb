"""The features of a layer, and predictions of any type from columns of any type."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.model.trained_model import TrainedModel, load_model


class Sum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum(1)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sum, self.lstm, self.head = Sum(), nn.LSTM(8, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0]) + self.sum(x)[:, None]


def recurrent() -> Recipe:
    return Recipe(model=Recurrent(), features="x", label="label", loss=nn.CrossEntropyLoss())


@pytest.fixture
def model(tmp_path: Path) -> TrainedModel:
    uri = datasets.write(tmp_path / "dataset", {"train": datasets.blobs(40)})
    fit(f"{__name__}:recurrent", dataset=uri, model=str(tmp_path / "model"), epochs=1, batch_size=20)
    return load_model(str(tmp_path / "model"))


def test_features_are_flat_also_for_one_value_a_row(model: TrainedModel) -> None:
    rows = datasets.blobs(5)
    assert model.features("head", rows).shape == (5, 3)
    sums = torch.from_numpy(np.asarray(rows["x"]).copy()).sum(1)[:, None]
    torch.testing.assert_close(model.features("sum", rows).cpu(), sums)


def test_a_layer_that_returns_no_tensor_is_refused(model: TrainedModel) -> None:
    message = r"layer 'lstm' \(LSTM\) returns a tuple, and not a tensor of rows"
    with pytest.raises(TrainyardError, match=message):
        model.features("lstm", datasets.blobs(5))


def get_prediction(model: TrainedModel, convert: Any, columns: dict[str, Any]) -> Any:
    recipe = replace(model.recipe, predict=lambda output: {"score": convert(output)})
    return TrainedModel(model.artifact, recipe, model._network).predict(columns)["score"]


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_a_prediction_in_half_precision_becomes_float(model: TrainedModel, kind: torch.dtype) -> None:
    prediction = get_prediction(model, lambda output: output.to(kind), datasets.blobs(5))
    assert prediction.dtype == np.float32
    assert prediction == pytest.approx(model.output(datasets.blobs(5)).cpu().numpy(), rel=0.01, abs=0.01)


def test_a_complex_prediction_is_refused(model: TrainedModel) -> None:
    with pytest.raises(TrainyardError, match="predict returned column 'score' with complex numbers"):
        get_prediction(model, lambda output: torch.complex(output, output), datasets.blobs(5))


def test_integers_may_be_values_of_a_float_column(model: TrainedModel) -> None:
    rows = np.arange(16).reshape(2, 8)
    torch.testing.assert_close(model.output({"x": rows}), model.output({"x": rows.astype(np.float32)}))
