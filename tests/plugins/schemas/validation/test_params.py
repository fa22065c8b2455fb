"""Parameters that a template has rendered to text reach user code as the numbers that it declares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from trainyard.errors import TrainyardError
from trainyard.schemas.validation.params import convert_texts

if TYPE_CHECKING:
    from torch import Tensor


def declared(
    width: int, rate: float = 0.1, best: bool = False, seed: int | None = None, name: str = "", label: str | int = "",
    layers: Sequence[int] = (), other: Any = None,
) -> None: ...  # fmt: skip


def declared_in_part(width, rate: float = 0.1): ...  # type: ignore[no-untyped-def]


def described(n: "rows per day", m: int = 3) -> None: ...  # type: ignore[syntax]  # noqa: F722


def declared_for_type_checkers(width: int, weights: Tensor) -> None: ...


def test_texts_become_what_the_function_declares() -> None:
    params = {"width": "8", "rate": "3e-3", "best": "True", "seed": "7"}
    assert convert_texts("p", declared, params) == {"width": 8, "rate": 0.003, "best": True, "seed": 7}


@pytest.mark.parametrize("name", ["name", "label", "layers", "other", "unknown"])
def test_what_may_be_a_text_stays_one(name: str) -> None:
    assert convert_texts("p", declared, {name: "8"}) == {name: "8"}


def test_values_that_are_no_texts_stay_as_they_are() -> None:
    params = {"width": 8.5, "rate": 1, "seed": None, "layers": [1]}
    assert convert_texts("p", declared, params) == params


def test_a_function_without_annotations_gets_the_texts() -> None:
    assert convert_texts("p", declared_in_part, {"width": "8", "rate": "1"}) == {"width": "8", "rate": 1.0}
    assert convert_texts("p", declared_for_type_checkers, {"width": "8", "weights": "1"}) == {
        "width": 8,
        "weights": "1",
    }


def test_an_annotation_may_be_any_text() -> None:
    assert convert_texts("p", described, {"n": "3", "m": "3"}) == {"n": "3", "m": 3}


def test_none_that_a_template_renders_is_none_where_it_may_be() -> None:
    assert convert_texts("p", declared, {"seed": "None"}) == {"seed": None}


@pytest.mark.parametrize(("name", "value"), [("width", "8.5"), ("rate", "fast"), ("seed", "x"), ("best", "perhaps")])
def test_a_text_of_another_type_is_refused(name: str, value: str) -> None:
    message = f"^recipe_params: {name}='{value}' is not of the type that the function declares, (int|float|bool)"
    with pytest.raises(TrainyardError, match=message):
        convert_texts("recipe_params", declared, {name: value})
