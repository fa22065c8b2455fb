"""The table of phases."""

from __future__ import annotations

import json

import pytest

from trainyard.schemas.runs import phases
from trainyard.schemas.runs.phases import Phase


def test_a_phase_is_stored_as_its_name() -> None:
    assert json.loads(json.dumps({Phase.DATA_WAIT: Phase.COPY})) == {"data wait": "copy"}
    assert phases.BY_NAME["data wait"] is Phase.DATA_WAIT


def test_a_worker_that_waits_for_others_is_in_a_later_phase_than_they_are() -> None:
    order = [
        Phase.START, Phase.RENDEZVOUS, Phase.SET_UP, Phase.DATA_WAIT, Phase.BACKWARD, Phase.OPTIMIZER, Phase.VALIDATE,
        Phase.WRITE_MODEL, Phase.CHECKPOINT,
    ]  # fmt: skip
    assert sorted(order, key=lambda phase: phase.position) == order


@pytest.mark.parametrize(
    ("span", "computes", "in_step"),
    [
        ("forward", True, True),
        ("data wait", False, True),
        ("communication", False, True),
        ("find checkpoint", False, False),
        ("write dataset", True, False),
        ("a span of another version", True, False),
    ],
)
def test_what_a_span_costs_follows_from_its_phase(span: str, computes: bool, in_step: bool) -> None:
    assert (phases.computes(span), phases.is_in_step(span)) == (computes, in_step)
