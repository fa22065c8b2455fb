"""Whoever writes the name that another system has for an option reads which one to write."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from trainyard import operators
from trainyard.errors import TrainyardError
from trainyard.jobs.operator import JobOperator
from trainyard.jobs.options.familiar import FAMILIAR
from trainyard.operators import Placement, PredictOperator, ScriptOperator, TrainOperator

OPERATORS = [one for one in map(vars(operators).get, operators.__all__) if isinstance(one, type)]
OPTIONS = {name for one in OPERATORS if issubclass(one, JobOperator) for name in one.PARAMETERS}


@pytest.mark.parametrize(
    ("operator", "name", "instead"),
    [
        (TrainOperator, "num_workers", "workers="),
        (PredictOperator, "num_executors", "executors="),
        (TrainOperator, "num_gpus", "gpus_per_worker="),
        (PredictOperator, "num_gpus", "gpus_per_executor="),
        (ScriptOperator, "executor_cores", "cores_per_worker="),
        (TrainOperator, "yarn_queue", "placement=Placement(queue=...)"),
        (TrainOperator, "max_epochs", "epochs="),
    ],
)
def test_an_operator_names_its_own_option(operator: Any, name: str, instead: str) -> None:
    with pytest.raises(TrainyardError, match=f"^{operator.__name__} 't': {name!r} is not a known option; ") as refused:
        operator(task_id="t", **{name: 2})
    assert str(refused.value).endswith(f"; write {instead}.")


@pytest.mark.parametrize("name", FAMILIAR)
def test_a_name_stands_for_options_that_exist_and_is_none_itself(name: str) -> None:
    assert name not in OPTIONS
    known = OPTIONS | {f"placement=Placement({field.name}=...)" for field in fields(Placement)}
    assert known.issuperset(FAMILIAR[name])


def test_the_nearest_option_is_named_where_an_operator_has_none_of_a_familiar_name() -> None:
    with pytest.raises(TrainyardError, match=r"'max_epochs' is not a known option; (the nearest|known)"):
        PredictOperator(task_id="t", max_epochs=2)
