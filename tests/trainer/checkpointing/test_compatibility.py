"""Which changes of a recipe a checkpoint does not survive."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.optim import lr_scheduler

from tests.trainer.recipes import linear
from trainyard.errors import TrainyardError
from trainyard.trainer.checkpointing.compatibility import check_resumable, describe_recipe, describe_schedule


def describe(rate: float = 0.1, schedule: Any = None, **fields: Any) -> dict[str, str]:
    optimizer = torch.optim.SGD(nn.Linear(2, 1).parameters(), rate)
    optimizer.param_groups[0]["scale_rate"] = lambda rate: rate
    described = describe_recipe(replace(linear(), **fields), optimizer)
    return described | (describe_schedule(schedule(optimizer), 40) if schedule else {})


def check(before: dict[str, str], now: dict[str, str], workers: int = 2, epochs: int = 3) -> None:
    has_schedule = "schedule" in now
    loop = {"recipe": before, "workers": 2, "schedule": {} if has_schedule else None, "epochs": 3}
    check_resumable("s/checkpoints/1", loop, now, workers, has_schedule, epochs)


def test_the_same_recipe_resumes_although_its_functions_are_other_objects() -> None:
    check(describe(), describe())


def test_another_learning_rate_is_refused_with_what_to_do() -> None:
    message = r'^the recipe\'s optimizer is SGD .*"lr": 0.2.*, but was SGD .*"lr": 0.1.* or remove the folder s'
    with pytest.raises(TrainyardError, match=message):
        check(describe(), describe(0.2))


def test_a_group_of_another_size_may_have_another_learning_rate() -> None:
    check(describe(), describe(0.2), workers=3)


def test_another_normalization_is_refused_for_any_size() -> None:
    for workers in (2, 3):
        with pytest.raises(TrainyardError, match="normalize is null, but was"):
            check(describe(), describe(normalize=None), workers)


SCHEDULES: list[Any] = [
    lambda optimizer: lr_scheduler.StepLR(optimizer, 5, gamma=0.1),
    lambda optimizer: lr_scheduler.StepLR(optimizer, 5, gamma=0.2),
    lambda optimizer: lr_scheduler.StepLR(optimizer, 6, gamma=0.1),
    lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [5, 9], gamma=0.1),
    lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [5, 8], gamma=0.1),
    lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 40),
    lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 40, eta_min=0.01),
    lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step),
    lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: 0.9 ** max(step - 30, 0)),
    lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: 0.9 ** max(step - 35, 0)),
    lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, 40),
    lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.2, 40),
    lambda optimizer: lr_scheduler.SequentialLR(optimizer, [SCHEDULES[0](optimizer), SCHEDULES[1](optimizer)], [9]),
    lambda optimizer: lr_scheduler.SequentialLR(optimizer, [SCHEDULES[0](optimizer), SCHEDULES[2](optimizer)], [9]),
    lambda optimizer: lr_scheduler.ChainedScheduler([SCHEDULES[0](optimizer), SCHEDULES[7](optimizer)]),
    lambda optimizer: lr_scheduler.ChainedScheduler([SCHEDULES[0](optimizer), SCHEDULES[8](optimizer)]),
]


def test_a_schedule_resumes_as_itself_only() -> None:
    for number, before in enumerate(SCHEDULES):
        check(describe(schedule=before), describe(schedule=before))
        for now in SCHEDULES[number + 1 :]:
            with pytest.raises(TrainyardError, match=r"the recipe's (schedule|optimizer) is .*, but was .* was saved"):
                check(describe(schedule=before), describe(schedule=now))


def test_a_group_of_another_size_may_have_another_schedule() -> None:
    check(describe(schedule=SCHEDULES[0]), describe(schedule=SCHEDULES[1]), workers=3)


def test_other_epochs_are_named_before_the_schedule_that_depends_on_them() -> None:
    with pytest.raises(TrainyardError, match=r"^epochs=4, but the checkpoint .* was saved with epochs=3"):
        check(describe(schedule=SCHEDULES[0]), describe(schedule=SCHEDULES[2]), epochs=4)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"features": ["x", "label"]}, r'features is \["x", "label"\], but was \["x"\]'),
        ({"label": "x"}, 'label is "x", but was "label"'),
        ({"freeze": ("0",)}, r'freeze is \["0"\], but was \[\]'),
        ({"schedule_by": "epoch"}, 'schedule_by is "epoch", but was "update"'),
        ({"loss": nn.MSELoss()}, 'loss is MSELoss {"reduction": "mean"}, but was CrossEntropyLoss {'),
        ({"loss": nn.CrossEntropyLoss(label_smoothing=0.1)}, 'loss is .*"label_smoothing": 0.1.*, but was .*: 0.0'),
        ({"loss": nn.CrossEntropyLoss(torch.ones(3))}, 'loss is .*"weight": .*, but was'),
        ({"loss": partial(functional.cross_entropy, ignore_index=2)}, 'loss is cross_entropy {"ignore_index": 2}, but'),
    ],
)
def test_each_field_that_changes_what_is_trained_is_compared(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainyardError, match=f"^the recipe's {message}"):
        check(describe(), describe(**changed))
