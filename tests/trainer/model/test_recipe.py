"""Which functions are called for a recipe, whose path may come from the document of a model."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import trainyard.trainer
from tests.trainer.recipes import linear
from trainyard.errors import TrainyardError
from trainyard.trainer.model.recipe import Recipe, load

HERE = "tests.trainer.model.test_recipe"


def by_attribute() -> trainyard.trainer.Recipe:
    return linear()


def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@decorate
def decorated() -> Recipe:
    return linear()


def without_annotation():  # type: ignore[no-untyped-def]
    raise AssertionError("called")


def of_another_type(path: str) -> None:
    Path(path).touch()


class Other:
    class Recipe:
        pass


def of_another_class() -> Other.Recipe:
    raise AssertionError("called")


@pytest.mark.parametrize("name", ["linear", "by_attribute", "decorated"])
def test_a_function_that_declares_a_recipe_is_called(name: str) -> None:
    assert isinstance(load(f"{HERE}:{name}", {}), Recipe)


@pytest.mark.parametrize("name", ["without_annotation", "of_another_class", "HERE"])
def test_what_does_not_declare_a_recipe_is_not_called(name: str) -> None:
    with pytest.raises(TrainyardError, match=rf"is not called.*def {name}\(\.\.\.\) -> Recipe:"):
        load(f"{HERE}:{name}", {})


def test_a_path_to_a_dangerous_function_runs_nothing(tmp_path: Path) -> None:
    for path, params in (
        ("os:system", {"command": f"touch {tmp_path}/ran"}),
        (f"{HERE}:of_another_type", {"path": "x"}),
    ):
        with pytest.raises(TrainyardError, match="is not called"):
            load(path, params)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", [linear, "digits.recipe", "digits.recipe:", ":linear"])
def test_what_is_no_import_path_is_refused(path: Any) -> None:
    with pytest.raises(TrainyardError, match=r"recipe=.* is not an import path\. Write 'module:function'"):
        load(path, {})


def test_keyword_arguments_name_columns_and_their_masks() -> None:
    features = {"ids": "tokens", "mask": "tokens_mask", "age": "age", "more": "tokens"}
    named = Recipe(model=nn.Linear(1, 1), features=features)
    assert (named.inputs, named.keywords) == (("tokens", "age"), features)
    assert Recipe(model=nn.Linear(1, 1), features=["a", "b"]).keywords is None


def test_a_mask_of_a_nested_column_is_refused() -> None:
    with pytest.raises(TrainyardError, match=r"features= names a mask, which sequences='nested' has not"):
        Recipe(model=nn.Linear(1, 1), features={"ids": "t", "mask": "t_mask"}, sequences="nested")


def test_a_mask_that_is_a_column_of_the_dataset_is_a_feature() -> None:
    """Tokens that a tokenizer has padded to one length have a mask of their own."""
    recipe = Recipe(model=nn.Linear(1, 1), features={"input_ids": "tokens", "attention_mask": "tokens_mask"})
    assert recipe.inputs == ("tokens",)
    assert recipe.find_masks(["tokens", "tokens_mask", "label"]).inputs == ("tokens", "tokens_mask")
    assert recipe.find_masks(["tokens", "label"]).inputs == ("tokens",)
