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
from trainyard.trainer.model.artifacts.trained_model import TrainedModel, load_model
from trainyard.trainer.model.recipe import Recipe


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
    return TrainedModel(model.artifact, recipe, model.network).predict(columns)["score"]


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


class Numbers(nn.Module):
    """The sum of an embedded number, of two bytes, and of a flag."""

    def __init__(self) -> None:
        super().__init__()
        self.city = nn.Embedding(5, 1)

    def forward(self, city: Tensor, bytes_: Tensor, flag: Tensor, price: Tensor) -> Tensor:
        return self.city(city)[:, 0] + bytes_.sum(1) + flag + price


def numbers() -> Recipe:
    return Recipe(
        model=Numbers(), features=("city", "bytes", "flag", "price"), label="label", loss=nn.MSELoss(),
    )  # fmt: skip


NUMBERS = {
    "city": np.array([0, 4, 2, 1], np.int32),
    "bytes": np.array([[0, 255], [1, 2], [3, 4], [5, 6]], np.uint8),
    "flag": np.array([True, False, True, False]),
    "price": np.array([0.5, 1.5, -2.0, 8.0], np.float32),
}


@pytest.fixture(scope="module")
def of_numbers(tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    folder = tmp_path_factory.mktemp("numbers")
    uri = datasets.write(folder / "data", {"train": NUMBERS | {"label": np.zeros(4, np.float32)}})
    fit(f"{__name__}:numbers", dataset=uri, model=str(folder / "model"), epochs=1, batch_size=4)
    return load_model(str(folder / "model"))


@pytest.mark.parametrize(
    "columns",
    [
        {name: values.tolist() for name, values in NUMBERS.items()},
        {"city": NUMBERS["city"].astype(np.int8), "bytes": NUMBERS["bytes"].astype(np.int64)},
        {"city": NUMBERS["city"].astype(np.float32), "bytes": NUMBERS["bytes"].astype(np.float64)},
        {"flag": NUMBERS["flag"].astype(np.int64), "price": NUMBERS["price"].astype(np.float64)},
        {"city": torch.from_numpy(NUMBERS["city"]).long(), "bytes": torch.from_numpy(NUMBERS["bytes"]).bfloat16()},
        {"city": NUMBERS["city"][:, None], "price": torch.from_numpy(NUMBERS["price"]).half().requires_grad_()},
    ],
)
def test_numbers_of_any_type_become_those_of_the_column(of_numbers: TrainedModel, columns: dict[str, Any]) -> None:
    assert of_numbers.output(NUMBERS | columns).tolist() == of_numbers.output(NUMBERS).tolist()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"city": [0, 4, 2, 1.5]}, r"^column 'city' has the value 1\.5, which its type in the training, int32, cannot"),
        ({"city": [0, 4, 2, 1 << 40]}, r"^column 'city' has the value 1099511627776, .* int32"),
        ({"bytes": np.full((4, 2), -1)}, r"^column 'bytes' has the value -1, .* uint8"),
        ({"flag": [0, 1, 2, 0]}, r"^column 'flag' has the value 2, .* bool"),
        ({"price": np.full(4, 1e300)}, r"^column 'price' has the value 1e\+300, .* float"),
        ({"city": [0.0, 1.0, np.nan, 2.0]}, r"^column 'city' has the value nan, .* int32"),
        ({"city": 3}, r"^column 'city' is of type int; pass an array or a list with a value for each row"),
        ({"price": torch.tensor(2.5)}, r"^column 'price' is a single number; pass an array or a list with a value for"),
        (
            {"city": NUMBERS["city"][:3]},
            "^the columns have different numbers of rows: city 3, bytes 4, flag 4",
        ),
        (
            {"bytes": [[1, 2], [3], [4, 5], [6, 7]]},
            r"takes column 'bytes' with shape \[2\], but its rows differ in",
        ),
    ],
)
def test_what_a_column_cannot_have_is_refused(of_numbers: TrainedModel, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainyardError, match=message):
        of_numbers.output(NUMBERS | columns)


def test_elements_of_variable_length_become_numbers_of_the_column(bags: TrainedModel) -> None:
    rows = datasets.sequences(3)
    floats = {"tokens": [row.astype(np.float64) for row in rows["tokens"]], "frames": rows["frames"]}
    assert bags.output(floats).tolist() == bags.output(rows).tolist()
    floats["tokens"][1] = np.array([0.5])
    with pytest.raises(TrainyardError, match=r"^column 'tokens' has the value 0\.5, .* int64"):
        bags.output(floats)
