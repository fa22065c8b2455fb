"""The outer optimizer of DiLoCo, against steps by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from trainyard.schemas.specs.strategies import DiLoCo as Options
from trainyard.trainer.strategies.diloco import DiLoCo
from trainyard.trainer.world import World

OPTIONS = Options(name="diloco", inner_steps=2, outer_learning_rate=0.5, outer_momentum=0.9)


def wrap(weight: float) -> tuple[DiLoCo, nn.Linear]:
    """Return the strategy of a model of one weight."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, weight)
    strategy = DiLoCo(OPTIONS, World())
    strategy.wrap_model(model, lambda *_: None)
    return strategy, model


def take_inner_steps(strategy: DiLoCo, model: nn.Linear, *weights: float) -> float:
    """Let the inner optimizer set these weights, one after each step, and return the weight that follows."""
    for weight in weights:
        nn.init.constant_(model.weight, weight)
        strategy.after_step()
    return model.weight.item()


def test_the_outer_step_is_nesterovs() -> None:
    strategy, model = wrap(1.0)
    # The gradient is 1 - 0.6 = 0.4, the momentum 0.4, the step 0.5 (0.4 + 0.9 x 0.4) = 0.38.
    assert take_inner_steps(strategy, model, 0.7, 0.6) == pytest.approx(0.62)
    # The gradient is 0.62 - 0.52 = 0.1, the momentum 0.9 x 0.4 + 0.1 = 0.46, the step 0.5 (0.1 + 0.9 x 0.46) = 0.257.
    assert take_inner_steps(strategy, model, 0.6, 0.52) == pytest.approx(0.363)


def test_one_worker_does_not_wait_for_others() -> None:
    model, strategy = nn.Linear(1, 1), DiLoCo(OPTIONS, World())
    waits: list[int] = []
    strategy.wrap_model(model, lambda *times: waits.append(1))
    take_inner_steps(strategy, model, 0.7, 0.6)
    assert waits == []


def test_the_outer_momentum_continues_after_a_resume() -> None:
    strategy, model = wrap(1.0)
    take_inner_steps(strategy, model, 0.7, 0.6)
    resumed, other = wrap(0.62)
    resumed.restore(strategy.state())
    assert take_inner_steps(resumed, other, 0.6, 0.52) == pytest.approx(0.363)


def test_the_outer_weights_after_a_resume_are_those_of_the_model() -> None:
    strategy, model = wrap(5.0)
    nn.init.constant_(model.weight, 1.0)  # as the weights of a checkpoint are loaded
    strategy.restore({})
    assert take_inner_steps(strategy, model, 0.7, 0.6) == pytest.approx(0.62)


def test_an_epoch_that_ends_between_outer_steps_takes_one() -> None:
    strategy, model = wrap(1.0)
    take_inner_steps(strategy, model, 0.6)
    assert not strategy.in_sync
    strategy.synchronize()
    assert model.weight.item() == pytest.approx(0.62)
    assert strategy.in_sync
    assert take_inner_steps(strategy, model, 0.6) == pytest.approx(0.6), "the next outer step is due in two steps"


def get_momentum(strategy: DiLoCo) -> dict[str, Any]:
    return {name: value.tolist() for name, value in strategy.state().items()}


def test_a_synchronization_right_after_an_outer_step_does_nothing() -> None:
    strategy, model = wrap(1.0)
    take_inner_steps(strategy, model, 0.7, 0.6)
    before = model.weight.detach().clone(), get_momentum(strategy)
    strategy.synchronize()
    assert torch.equal(model.weight, before[0]) and get_momentum(strategy) == before[1]
