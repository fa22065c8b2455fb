"""A model has the values of its dataset's categories, and the names of its classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from torch import Tensor, nn

from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.schemas.datasets.fitted_state import FittedState, Vocabulary
from trainyard.trainer import Portion, fit, load_model
from trainyard.trainer.model.recipe import Recipe

KINDS = Vocabulary(type="string", values=("apple", "pear"), is_label=True)
CITIES = Vocabulary(type="string", values=("Ur", "Uruk"))
STATE = FittedState(options={}, vocabularies={"city": CITIES, "kind": KINDS})
OTHER = FittedState(options={}, vocabularies={"city": Vocabulary(type="string", values=("Uruk", "Ur")), "kind": KINDS})


class Lookup(nn.Module):
    """Return the output of each class of a city."""

    def __init__(self, cities: int, classes: int) -> None:
        super().__init__()
        self.table = nn.Embedding(cities, classes)

    def forward(self, city: Tensor) -> Tensor:
        return self.table(city)  # type: ignore[no-any-return]


def lookup(categories: dict[str, int], top: int = 1, shift: int = 0, start_from: str | None = None) -> Recipe:
    return Recipe(
        model=Lookup(categories["city"], categories["kind"]), features="city", label="kind", classes=categories["kind"],
        learning_rate=0.1, start_from=start_from,
        predict=lambda output: {"class": output.topk(top).indices.squeeze(1) + shift, "rank": output.argmax(1)},
    )  # fmt: skip


def write(directory: Path, state: FittedState | None = STATE) -> str:
    cities = np.arange(60) % 3
    return datasets.write(directory, {"train": {"city": cities, "kind": (cities == 2).astype(np.int64)}}, fitted=state)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A dataset, and a model that is trained on it."""
    directory = tmp_path_factory.mktemp("categories")
    dataset, model = write(directory / "dataset"), str(directory / "model")
    fit(f"{__name__}:lookup", dataset=dataset, model=model, epochs=10, batch_size=10)
    return dataset, model


def test_texts_are_looked_up_and_classes_named(trained: tuple[str, str]) -> None:
    model = load_model(trained[1])
    for cities in (["Uruk", "Ur", "Babylon", None], np.array(["Uruk", "Ur", "Babylon", ""]), [2, 1, 0, 0]):
        predicted = model.predict({"city": cities})
        assert predicted["class"].tolist() == ["pear", "apple", "apple", "apple"]
        assert predicted["rank"].tolist() == [1, 0, 0, 0]
    assert model.predict({"city": ["Uruk"]}, names=False)["class"].tolist() == [1]


def test_a_column_of_several_classes_has_several_names(trained: tuple[str, str], tmp_path: Path) -> None:
    fit(f"{__name__}:lookup", dataset=trained[0], model=str(tmp_path), recipe_params={"top": 2}, batch_size=10)
    assert sorted(load_model(str(tmp_path)).predict({"city": ["Ur"]})["class"][0]) == ["apple", "pear"]


def test_the_number_of_no_class_is_refused(trained: tuple[str, str], tmp_path: Path) -> None:
    fit(f"{__name__}:lookup", dataset=trained[0], model=str(tmp_path), recipe_params={"shift": 5}, batch_size=10)
    with pytest.raises(TrainyardError, match=r"predict of the recipe returns \d in 'class', and there are 2 classes"):
        load_model(str(tmp_path)).predict({"city": ["Ur"]})


def test_the_card_names_the_number_of_categories_and_classes(trained: tuple[str, str]) -> None:
    card = next(Path(trained[1]).glob("*/card.md")).read_text()
    assert r"| city | int64 \[\], 2 categories |" in card and "| kind | 2 classes, the label |" in card


def test_a_recipe_that_needs_categories_is_refused_without_any(tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match=r"has a parameter 'categories', .* but the dataset has none"):
        fit(f"{__name__}:lookup", dataset=write(tmp_path / "d", None), model=str(tmp_path / "m"))


def test_datasets_whose_indices_mean_other_values_are_not_mixed(trained: tuple[str, str], tmp_path: Path) -> None:
    mix = [Portion.of(write(tmp_path / "other", OTHER), 0.5)]
    with pytest.raises(TrainyardError, match="mix: the indices in column 'city' mean other values"):
        fit(f"{__name__}:lookup", dataset=trained[0], model=str(tmp_path / "m"), mix=mix, batch_size=10)


def test_weights_of_a_model_of_other_categories_are_a_warning(trained: tuple[str, str], tmp_path: Path) -> None:
    start, other = {"start_from": trained[1]}, write(tmp_path / "other", OTHER)
    for dataset, expected in ((trained[0], 0), (other, 1)):
        result = fit(f"{__name__}:lookup", dataset=dataset, model=str(tmp_path), recipe_params=start, batch_size=10)
        assert len([text for text in result.warnings if "the indices in column 'city' mean other" in text]) == expected


@pytest.mark.full
@pytest.mark.slow
def test_other_formats_take_indices_and_return_numbers_of_classes(trained: tuple[str, str], tmp_path: Path) -> None:
    import mlflow.pyfunc
    import pandas as pd

    formats = ["mlflow", "pt2"]
    uris = fit(f"{__name__}:lookup", dataset=trained[0], model=str(tmp_path), formats=formats, batch_size=10).formats
    predicted = mlflow.pyfunc.load_model(uris["mlflow"]).predict(pd.DataFrame({"city": [2, 1]}))
    assert predicted["class"].isin([0, 1]).all()
    assert [*Path(uris["mlflow"]).glob("data/*/*/fitted_state.json")]
