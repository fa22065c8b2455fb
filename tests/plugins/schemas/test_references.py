"""What results refer to, as documents declare it and as it is found in the arguments of user code."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plugins.results import OUTPUTS, output
from trainyard.schemas.references import Reference, find_results
from trainyard.schemas.specs import SPECS

DATASET, MODEL = Reference("file:///s/toy/dataset", 1), Reference("file:///s/toy/model", "a" * 64)
PREDICTIONS = output("predict")["uri"]
"""It is beside the weights of the model in the XCom of a prediction, and refers to nothing."""


@pytest.mark.parametrize(
    ("params", "references"),
    [
        ({"teacher": output("train")}, {MODEL}),
        ({"layers": [{"rows": output("export")}, output("predict")]}, {DATASET, MODEL}),
        ({"scores": (output("evaluate"),)}, {DATASET, MODEL}),
        ({"uri": "file:///s/x", "version": None, "rate": 0.5, "names": ["a"]}, set()),
    ],
)
def test_results_are_found_at_any_depth(params: Any, references: set[Reference]) -> None:
    assert {each for each in find_results(params) if each.uri != PREDICTIONS} == references


@pytest.mark.parametrize("job", OUTPUTS)
def test_a_result_declares_what_its_xcom_names(job: str) -> None:
    declared = SPECS[f"{job} spec"].RESULT.model_validate(output(job)).references()
    named = {each for each in find_results(output(job)) if each.uri != PREDICTIONS}
    assert {each for each in declared if each.version} == named
