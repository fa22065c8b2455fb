"""Which changes of a recipe a checkpoint does not survive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from tests.trainer.recipes import linear
from trainyard.errors import TrainyardError
from trainyard.trainer.checkpointing.compatibility import check_resumable, describe_recipe


def describe(rate: float = 0.1, **fields: Any) -> dict[str, str]:
    optimizer = torch.optim.SGD(nn.Linear(2, 1).parameters(), rate)
    optimizer.param_groups[0]["scale_rate"] = lambda rate: rate
    return describe_recipe(replace(linear(), **fields), optimizer)


def check(before: dict[str, str], now: dict[str, str], workers: int = 2) -> None:
    loop = {"recipe": before, "workers": 2, "schedule": None, "epochs": 3}
    check_resumable("s/checkpoints/1", loop, now, workers, has_schedule=False, epochs=3)


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
