"""The heads of a recipe: what contradicts itself is refused, outputs are found by name, and predictions are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.trainer import datasets, heads
from trainyard.errors import TrainyardError
from trainyard.schemas.datasets.manifest import Column
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.artifacts import card
from trainyard.trainer.model.artifacts.trained_model import load_model
from trainyard.trainer.model.heads import Head
from trainyard.trainer.model.network import Network
from trainyard.trainer.model.recipe import Recipe

X = Column(name="x", kind="tensor", type="float", shape=(8,))


def test_the_label_of_a_head_has_its_name_by_default() -> None:
    recipe = Recipe(model=nn.Identity(), features="x", heads={"kind": Head(classes=3), "size": Head(label="cm")})
    assert recipe.labels == {"kind": "kind", "size": "cm"}
    assert recipe.columns == ("x", "kind", "cm")
    assert isinstance(recipe.heads_by_name["kind"].loss, nn.CrossEntropyLoss)


@pytest.mark.parametrize("field", [{"label": "kind"}, {"loss": nn.MSELoss()}, {"classes": 3}, {"predict": dict}])
def test_heads_and_a_field_that_they_have_contradict_each_other(field: dict[str, Any]) -> None:
    (name,) = field
    with pytest.raises(TrainyardError, match=f"{name}= and heads= contradict each other; write {name}= in the heads"):
        Recipe(model=nn.Identity(), features="x", heads={"kind": Head(classes=3)}, **field)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Head(loss="cross_entropy"), r"loss='cross_entropy' is not a function; write one, .* nn.MSELoss\(\)"),  # type: ignore[arg-type]
        (lambda: Head(classes=3, metrics=["acc"]), "'acc', which is none of accuracy, precision"),
        (lambda: Head(weight=-1.0), r"weight=-1\.0 of a head is not valid; write a number, 0 or more"),
        (lambda: Head(loss=nn.MSELoss(), metrics=["accuracy"]), "'accuracy' needs the number of classes"),
        (lambda: Recipe(model=nn.Identity(), features="x", heads={"a b": Head()}), "name 'a b', which is part of"),
        (
            lambda: Recipe(model=nn.Identity(), features="x", heads={"a": Head(), "A": Head()}),
            "by case only: a, A",
        ),
        (lambda: Recipe(model=nn.Identity(), features="x", heads={"a": nn.MSELoss()}), "is a MSELoss; write a .*Head"),  # type: ignore[dict-item]
    ],
)
def test_what_is_no_head_is_refused(build: Any, message: str) -> None:
    with pytest.raises(TrainyardError, match=message):
        build()


@pytest.mark.parametrize("returns", ["dict", "tuple", "named tuple", "object"])
def test_outputs_are_found_by_name_or_by_order(returns: str) -> None:
    model = heads.Two(returns)
    x = torch.randn(4, 8)
    output = Network(model, (X,), {}, heads=["kind", "size"])({"x": x})
    assert [*output] == ["kind", "size"]
    assert torch.equal(output["kind"], model.kind(x)) and torch.equal(output["size"], model.size(x))


def test_an_object_without_the_output_of_a_head_is_refused() -> None:
    class One(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return heads.Pair(kind=x, size=x)

    with pytest.raises(TrainyardError, match="no output of the head 'color', but a Pair"):
        Network(One(), (X,), {}, heads=["kind", "color"])({"x": torch.zeros(1, 8)})


def test_columns_of_a_prediction_begin_with_the_name_of_their_head(tmp_path: Path) -> None:
    fit(f"{heads.__name__}:two", dataset=heads.write(tmp_path), model=str(tmp_path / "m"), epochs=1, batch_size=25)
    model, rows = load_model(str(tmp_path / "m")), {"x": np.asarray(heads.rows(5)["x"])}
    output = model.output(rows)
    predicted = model.predict(rows)
    assert [*predicted] == ["kind_class", "size_prediction"]
    assert predicted["kind_class"].tolist() == output["kind"].argmax(1).tolist()
    assert predicted["size_prediction"].tolist() == output["size"].tolist()
    assert [*model.artifact.heads] == ["kind", "size"] and model.artifact.label is None
    assert "| kind | int64, the label of the head kind |" in card.render_markdown(model.artifact)


def test_two_heads_with_one_column_of_a_prediction_are_refused() -> None:
    recipe = Recipe(
        model=nn.Identity(), features="x",
        heads={"a": Head(predict=lambda output: {"b_c": output}), "a_b": Head(predict=lambda output: {"c": output})},
    )  # fmt: skip
    with pytest.raises(TrainyardError, match="two heads of the recipe have the column 'a_b_c'"):
        recipe.predict_columns({"a": torch.zeros(1), "a_b": torch.zeros(1)})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"size": None},
            r"the head 'size' has the label 'size', which the dataset does not have; its columns are x",
        ),
        (
            {"x": np.ma.masked_array(np.zeros(40), np.arange(40) < 9)},
            "the feature 'x' is null in some rows",
        ),
        ({"kind": np.full(40, 3)}, "has classes=3, so labels must be 0 to 2; column 'kind'"),
    ],
)
def test_datasets_that_do_not_suit_the_heads_are_refused(tmp_path: Path, columns: Any, message: str) -> None:
    rows = {name: values for name, values in (heads.rows(40) | columns).items() if values is not None}
    with pytest.raises(TrainyardError, match=message):
        fit(
            f"{heads.__name__}:two", dataset=datasets.write(tmp_path / "dataset", {"train": rows}), epochs=1,
            model=str(tmp_path / "model"), batch_size=10,
        )  # fmt: skip
