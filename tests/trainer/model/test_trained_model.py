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


@pytest.mark.parametrize(
    ("kind", "wider"), [(torch.uint8, np.int16), (torch.uint16, np.int32), (torch.uint32, np.int64)]
)
def test_an_unsigned_prediction_has_a_type_that_spark_has(
    model: TrainedModel, kind: torch.dtype, wider: type[np.generic]
) -> None:
    largest = torch.iinfo(kind).max
    prediction = get_prediction(model, lambda output: torch.full((5,), largest, dtype=kind), datasets.blobs(5))
    assert prediction.dtype == wider
    assert prediction.tolist() == [largest] * 5


def test_a_prediction_of_the_largest_unsigned_type_is_refused(model: TrainedModel) -> None:
    with pytest.raises(TrainyardError, match=r"column 'score' with numbers of type uint64, .* \.to\(torch\.int64\)"):
        get_prediction(model, lambda output: torch.zeros(5, dtype=torch.uint64), datasets.blobs(5))


@pytest.mark.parametrize("value", [[0, 1], np.zeros(2)])
def test_a_prediction_that_is_no_tensor_is_refused(model: TrainedModel, value: Any) -> None:
    message = (
        f"predict of the recipe .*recurrent' returns a {type(value).__name__} in 'score'; return a dict of tensors"
    )
    with pytest.raises(TrainyardError, match=message):
        get_prediction(model, lambda output: value, datasets.blobs(2))


class Several(nn.Module):
    """Return two outputs, in a tuple or in a dict."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.head, self.kind = nn.Linear(8, 3), kind

    def forward(self, x: Tensor) -> Any:
        output = self.head(x)
        return (output, x) if self.kind == "tuple" else {"logits": output, "x": x}


def penalize(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    output = model(batch)
    return (output if isinstance(output, tuple) else output["logits"])[0].square().mean()


def several(kind: str) -> Recipe:
    return Recipe(model=Several(kind), features="x", step=penalize)


@pytest.mark.parametrize(("kind", "part"), [("tuple", "0"), ("dict", "'logits'")])
def test_a_model_with_several_outputs_needs_predict(tmp_path: Path, kind: str, part: str) -> None:
    uri, model = datasets.write(tmp_path / "dataset", {"train": datasets.blobs(40)}), str(tmp_path / "model")
    fit(f"{__name__}:several", recipe_params={"kind": kind}, dataset=uri, model=model, epochs=1, batch_size=20)
    with pytest.raises(TrainyardError, match=rf"the model returns a {kind}.* predict= .* output\[{part}\]"):
        load_model(model).predict(datasets.blobs(5))


class Bag(nn.Module):
    """Return the sums of the embeddings of tokens and of frames."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)

    def forward(self, tokens: Tensor, tokens_mask: Tensor, frames: Tensor, frames_mask: Tensor) -> Tensor:
        return (self.embedding(tokens) * tokens_mask[..., None]).sum(1) + frames.sum(1)


def bag() -> Recipe:
    return Recipe(model=Bag(), features=["tokens", "frames"], label="label", loss=nn.CrossEntropyLoss())


@pytest.fixture(scope="module")
def bags(tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    folder = tmp_path_factory.mktemp("bags")
    uri = datasets.write(folder / "dataset", {"train": datasets.sequences(40)})
    fit(f"{__name__}:bag", dataset=uri, model=str(folder / "model"), epochs=1, batch_size=20)
    return load_model(str(folder / "model"))


@pytest.mark.parametrize("tokens", [[[1, 2], []], [np.array([1, 2]), np.array([])], [[1, 2], np.empty(0, np.int32)]])
@pytest.mark.parametrize("frames", [[[], [[1, 2, 3, 4]]], [np.empty((0, 4)), np.array([[1.0, 2.0, 3.0, 4.0]])]])
def test_rows_of_a_variable_length_column_may_be_empty(bags: TrainedModel, tokens: Any, frames: Any) -> None:
    embedded = bags.recipe.model.embedding.weight[[1, 2]].sum(0)
    expected = torch.stack([embedded, torch.tensor([1.0, 2.0, 3.0, 4.0], device=embedded.device)])
    torch.testing.assert_close(bags.output({"tokens": tokens, "frames": frames}), expected)


def test_there_may_be_no_rows(bags: TrainedModel) -> None:
    assert bags.predict({"tokens": [], "frames": []})["prediction"].shape == (0, 4)
    assert bags.predict({"tokens": np.empty((0, 3), np.int64), "frames": []})["prediction"].shape == (0, 4)


def test_elements_of_another_shape_are_refused(bags: TrainedModel) -> None:
    with pytest.raises(TrainyardError, match=r"column 'frames' with elements of shape \[4\], .* of shape \[3\]"):
        bags.predict({"tokens": [[1], [2]], "frames": [[], [[1, 2, 3]]]})


def test_values_that_are_no_numbers_are_refused(model: TrainedModel) -> None:
    with pytest.raises(TrainyardError, match=r"column 'x' with numbers \(float\), but its rows hold .* <U1"):
        model.output({"x": [["a"] * 8]})


def test_rows_may_be_an_array_of_objects(model: TrainedModel) -> None:
    rows = np.asarray(datasets.blobs(3)["x"])
    objects = np.empty(3, dtype=object)
    objects[:] = list(rows)
    torch.testing.assert_close(model.output({"x": objects}), model.output({"x": rows}))
