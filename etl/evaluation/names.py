"""Names in place of indices: of classes, and of categories in slices and examples."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from trainyard.errors import TrainyardError
from trainyard.etl.evaluation.evaluated_model import EvaluatedModel
from trainyard.schemas.datasets.fitted_state import Vocabulary
from trainyard.schemas.evaluation import Example, Scores
from trainyard.schemas.heads import name_metric

S = TypeVar("S", bound=Scores)
Vocabularies = Mapping[str, Vocabulary]


def read_vocabularies(models: Sequence[EvaluatedModel]) -> dict[str, Vocabulary]:
    """Return the values of the columns that models take, of their label, and of further columns of the dataset.

    Raises:
        TrainyardError: Two models take the indices of different values, so that no rows suit both.
    """
    found: dict[str, Vocabulary] = {}
    states = [model.artifact.read_fitted(model.uri) for model in models]
    for model, state in zip(models, states, strict=True):
        own = state.vocabularies
        for name in [*(column.name for column in model.artifact.inputs), model.label.name]:
            if name in own and found.setdefault(name, own[name]) != own[name]:
                raise TrainyardError(
                    f"the models {models[0].uri} and {model.uri} have indices of different values in column {name!r}: "
                    "the dataset was fitted anew between their trainings. Evaluate each alone, or train both on one "
                    "dataset."
                )
    return states[0].vocabularies | found


def name_curves(curves: Mapping[str, Any], classes: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return curves whose names have the name of their class in place of its number.

    Args:
        curves: The curves by name.
        classes: The names of the classes, by head.
    """
    named = dict(curves)
    for head, names in classes.items():
        pattern = re.compile(re.escape(name_metric(head, "")) + r"[^/]* of (\d+)")
        found = {name: pattern.fullmatch(name) for name in named}
        named = {(_replace(match, names) if match else name): named[name] for name, match in found.items()}
    return named


def _replace(match: re.Match[str], names: Sequence[str]) -> str:
    return match.string[: match.start(1)] + names[int(match[1])]


def name_slices(scores: S, vocabularies: Vocabularies) -> S:
    """Return the scores of a model, with the names of the slices of categories and classes."""
    slices = [
        part.model_copy(update={"value": _name(vocabularies[part.column], part.value)})
        if part.column in vocabularies else part for part in scores.slices
    ]  # fmt: skip
    return scores.model_copy(update={"slices": tuple(sorted(slices, key=lambda part: (part.column, part.value)))})


def name_example(example: Example, label: str, vocabularies: Vocabularies) -> Example:
    """Return an example with the names of its label, its categories, and the predicted class."""
    row = {name: _name(vocabularies[name], v) if name in vocabularies else v for name, v in example.row.items()}
    truth = _name(vocabularies[label], example.label) if label in vocabularies else example.label
    return example.model_copy(update={"row": row, "label": truth})


def _name(vocabulary: Vocabulary, index: Any) -> Any:
    """Return the name of an index, or the index if it has none, such as the label of rows that are ignored."""
    number = int(index) if isinstance(index, int | float) or str(index).lstrip("-").isdigit() else -1
    return vocabulary.names[number] if 0 <= number < vocabulary.size else index
