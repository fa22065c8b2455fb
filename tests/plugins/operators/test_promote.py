"""The task that promotes a model, or says why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowException, AirflowSkipException

from tests.plugins.evaluations import beside, evaluation, scores
from tests.plugins.operators.test_promotion import written
from trainyard.errors import TrainyardError
from trainyard.operators import PromoteOperator
from trainyard.schemas import model_artifact
from trainyard.schemas.evaluation import Scores


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the connection says that things are stored."""
    extra = json.dumps({"storage": f"file://{tmp_path}"})
    monkeypatch.setenv("AIRFLOW_CONN_TRAINYARD_DEFAULT", json.dumps({"conn_type": "trainyard", "extra": extra}))
    return tmp_path


def task(**options: Any) -> PromoteOperator:
    given = {"task_id": "promote", "evaluation": "e.json", "champion": "toy/champion", "metric": "accuracy"}
    return PromoteOperator(**(given | options))


def judged(root: Path, low: float, value: float, high: float) -> dict[str, Any]:
    """The XCom of an evaluation of a new model, better by that much than the champion."""
    champion = written(root / "toy/champion", b"old")
    model = written(root / "toy/model", b"new")
    other = beside(f"file://{root}/toy/champion", champion.weights_sha256, accuracy=(low, value, high))
    found = evaluation(Scores(**scores(f"file://{root}/toy/model", model.weights_sha256, accuracy=0.9)), other)
    found.save()
    return found.summary()


class Events(dict[Any, Any]):
    """What a task's context holds for the events of its assets."""

    def __missing__(self, asset: Any) -> Any:
        self[asset] = type("Event", (), {"extra": {}})()
        return self[asset]


def test_a_better_model_takes_the_champions_place_and_tells_its_asset(root: Path) -> None:
    given, events = judged(root, 0.01, 0.02, 0.03), Events()
    found = task(evaluation=given).execute({"outlet_events": events})  # type: ignore[typeddict-item]
    assert found["uri"] == f"file://{root}/toy/champion"
    assert (
        model_artifact.read_current(found["uri"]).weights_sha256 == given["weights_sha256"] == found["weights_sha256"]
    )
    assert events[Asset("toy/champion")].extra["why"] == found["why"]


@pytest.mark.parametrize(("on_reject", "raised"), [("skip", AirflowSkipException), ("fail", AirflowException)])
def test_else_what_comes_after_is_skipped_or_fails_and_the_champion_stays(
    root: Path, on_reject: str, raised: type[Exception]
) -> None:
    given = judged(root, -0.01, 0.02, 0.03)
    before = model_artifact.read_current(str(root / "toy/champion"))
    with pytest.raises(
        raised, match=r"toy/model is not promoted to .*toy/champion: accuracy is better by 0.02 \(-0.01"
    ):
        task(evaluation=given, on_reject=on_reject).execute({})
    assert model_artifact.read_current(str(root / "toy/champion")) == before


def test_an_evaluation_that_is_not_there_fails(root: Path) -> None:
    with pytest.raises(AirflowException, match=r"PromoteOperator 'promote': .*e\.json"):
        task().execute({})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"metric": "confusion_matrix"},
            r"'promote': of metric 'confusion_matrix' it is not known which way is better",
        ),
        ({"metric": "acc"}, r"of metric 'acc' it is not known"),
        ({"required": {"toy.metrics:own": 1.0}}, r"of metric 'toy.metrics:own' it is not known"),
        ({"margin": "much"}, r"margin='much'"),
        ({"on_reject": "wait"}, r"on_reject='wait' is neither 'skip' nor 'fail'"),
    ],
)
def test_a_rule_that_can_decide_nothing_is_refused_early(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainyardError, match=message):
        task(**options)


def test_templates_are_left_for_later() -> None:
    assert task(metric="{{ params.metric }}", champion="{{ params.to }}").outlets == []
