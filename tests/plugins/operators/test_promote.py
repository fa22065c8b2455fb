"""The task that promotes a model, or says why not."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.execution_time.context import OutletEventAccessors

from tests.plugins.contexts import MappedResults, make_context
from tests.plugins.evaluations import beside, evaluation, scores, write_model
from trainyard.compat import AirflowException, AirflowSkipException
from trainyard.errors import TrainyardError
from trainyard.files import storage
from trainyard.operators import PromoteOperator
from trainyard.planning.paths import run_directory
from trainyard.report.stages import Stage
from trainyard.schemas import model_artifact
from trainyard.schemas.evaluation import Scores
from trainyard.schemas.results import EvaluationResult, PromotionResult
from trainyard.schemas.runs import run_record
from trainyard.schemas.runs.run_record import RunRecord


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the connection says that things are stored."""
    extra = json.dumps({"storage": f"file://{tmp_path}"})
    monkeypatch.setenv("AIRFLOW_CONN_TRAINYARD_DEFAULT", json.dumps({"conn_type": "trainyard", "extra": extra}))
    return tmp_path


def task(**options: Any) -> PromoteOperator:
    given = {"task_id": "promote", "evaluation": "e.json", "champion": "toy/champion", "metric": "accuracy"}
    return PromoteOperator(**(given | options))


def run(events: OutletEventAccessors | None = None, **options: Any) -> dict[str, Any]:
    promote = task(**options)
    return promote.execute(make_context(promote, events))


def read_record(root: Path) -> RunRecord:
    [record] = run_record.read_run(run_directory(f"file://{root}", "toy", "r1"))
    return record


def judged(
    root: Path, low: float, value: float, high: float, model: str = "toy/model", accuracy: float = 0.9
) -> dict[str, Any]:
    """The XCom of an evaluation of a new model, better by that much than the champion."""
    champion = write_model(root / "toy/champion", b"old")
    artifact = write_model(root / model, model.encode())
    other = beside(f"file://{root}/toy/champion", champion.weights_sha256, accuracy=(low, value, high))
    metrics = {"accuracy": accuracy, "confusion_matrix": [[40, 1], [2, 57]]}
    result = evaluation(Scores(**scores(f"file://{root}/{model}", artifact.weights_sha256, **metrics)), other)
    result.save()
    return EvaluationResult.from_evaluation(result).to_xcom()


def test_a_better_model_replaces_the_champion_and_updates_its_asset(root: Path) -> None:
    given, events = judged(root, 0.01, 0.02, 0.03), OutletEventAccessors()
    result = run(events, evaluation=given)
    assert result["uri"] == f"file://{root}/toy/champion" and result["promoted"]
    assert (
        model_artifact.read_current(result["uri"]).weights_sha256 == given["weights_sha256"] == result["weights_sha256"]
    )
    assert events[Asset("toy/champion")].extra["why"] == result["why"]
    assert events[Asset("toy/champion")].extra["metrics"] == result["metrics"] == {"accuracy": 0.9}


@pytest.mark.parametrize("by_one_task", [True, False])
def test_the_best_of_several_models_becomes_the_champion(root: Path, by_one_task: bool) -> None:
    better, worse = judged(root, 0.03, 0.04, 0.05), judged(root, 0.01, 0.02, 0.03, model="toy/worse", accuracy=0.8)
    several = {"evaluations": {"toy/model": better, "toy/worse": worse}} if by_one_task else [better, worse]
    result = run(evaluation=several)
    assert result["weights_sha256"] == better["weights_sha256"]
    assert result["why"].startswith("the best of 2 models, accuracy 0.9: accuracy is better by 0.04")


def test_the_results_of_a_mapped_evaluation_are_several_models(root: Path) -> None:
    better, worse = judged(root, 0.03, 0.04, 0.05), judged(root, 0.01, 0.02, 0.03, model="toy/worse", accuracy=0.8)
    promote = task()
    promote.evaluation = MappedResults(worse, MappedResults(better))
    assert promote.execute(make_context(promote))["weights_sha256"] == better["weights_sha256"]


@pytest.mark.parametrize(("on_reject", "raised"), [("skip", AirflowSkipException), ("fail", AirflowException)])
def test_a_rejected_model_skips_or_fails_and_the_champion_stays(
    root: Path, on_reject: str, raised: type[Exception]
) -> None:
    given = judged(root, -0.01, 0.02, 0.03)
    before = model_artifact.read_current(str(root / "toy/champion"))
    with pytest.raises(
        raised, match=r"toy/model is not promoted to .*toy/champion: accuracy is better by 0.02 \(-0.01"
    ):
        run(evaluation=given, on_reject=on_reject)
    assert model_artifact.read_current(str(root / "toy/champion")) == before


def test_a_rejected_model_continues_without_an_event_of_the_champion(root: Path) -> None:
    given, events = judged(root, -0.01, 0.02, 0.03), OutletEventAccessors()
    before = model_artifact.read_current(str(root / "toy/champion"))
    promote = task(evaluation=given, on_reject="continue")
    result = promote.execute(make_context(promote, events))
    assert (result["promoted"], result["weights_sha256"]) == (False, before.weights_sha256)
    assert "accuracy is better by 0.02" in result["why"]
    assert promote.outlets == [] and not list(events)


def test_without_a_champion_a_rejected_model_continues_without_weights(root: Path) -> None:
    artifact = write_model(root / "toy/model", b"new")
    result = evaluation(Scores(**scores(f"file://{root}/toy/model", artifact.weights_sha256, accuracy=0.5)))
    result.save()
    given = EvaluationResult.from_evaluation(result).to_xcom()
    rejected = run(evaluation=given, on_reject="continue", required={"accuracy": 0.9})
    assert rejected["promoted"] is False and "weights_sha256" not in rejected


@pytest.mark.parametrize("on_reject", ["skip", "continue"])
def test_a_run_record_has_the_model_the_champion_and_the_reason(root: Path, on_reject: str) -> None:
    given = judged(root, -0.01, 0.02, 0.03)
    before = model_artifact.read_current(str(root / "toy/champion"))
    with suppress(AirflowSkipException):
        run(evaluation=given, on_reject=on_reject)
    stage = Stage(read_record(root), None, 0)
    candidate = f"toy/model@{given['weights_sha256'][:16]}"
    assert stage.headline.startswith(
        f"{candidate} is not promoted to toy/champion, which stays {before.folder}: accuracy "
    )
    assert stage.record.status == "succeeded" and stage.record.application == ""
    run(evaluation=given, confident=False)
    record = read_record(root)
    assert isinstance(record.result, PromotionResult) and record.result.replaced == before.weights_sha256
    stage = Stage(record, None, 0)
    assert stage.headline.startswith(
        f"{candidate} is promoted to toy/champion in place of {before.folder}: accuracy is b"
    )


def test_the_run_record_of_a_rejection_that_fails_has_its_reason_as_error(root: Path) -> None:
    with pytest.raises(AirflowException):
        run(evaluation=judged(root, -0.01, 0.02, 0.03), on_reject="fail")
    record = read_record(root)
    assert record.status == "failed" and record.error and "is not promoted to" in record.error
    assert record.result is None


def test_a_promotion_during_which_another_one_succeeds_fails(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worse = judged(root, 0.01, 0.02, 0.03)
    better = judged(root, 0.03, 0.04, 0.05, model="toy/better")
    copy = storage.copy

    def copy_slowly(source: str, target: str) -> None:
        monkeypatch.setattr(storage, "copy", copy)
        run(evaluation=better)
        copy(source, target)

    monkeypatch.setattr(storage, "copy", copy_slowly)
    with pytest.raises(AirflowException, match=r"'promote': another promotion has replaced the champion at .*again"):
        run(evaluation=worse)
    assert model_artifact.read_current(str(root / "toy/champion")).weights_sha256 == better["weights_sha256"]


def test_a_missing_evaluation_fails(root: Path) -> None:
    with pytest.raises(AirflowException, match=r"PromoteOperator 'promote': .*e\.json"):
        run()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"metric": "confusion_matrix"},
            r"'promote': metric='confusion_matrix': this metric has no known direction",
        ),
        ({"metric": "acc"}, r"metric='acc': this metric has no known direction"),
        (
            {"required": {"toy.metrics:own": 1.0}},
            r"required has the key 'toy.metrics:own'; this metric has no known direction",
        ),
        ({"margin": "much"}, r"margin='much'"),
        ({"margin": "nan"}, r"margin='nan': write a number\.$"),
        ({"margin": float("-inf")}, r"margin=-inf: write a number"),
        ({"required": {"accuracy": "nan"}}, r"required.accuracy='nan': write a number"),
        ({"required": ["accuracy"]}, r"required=\['accuracy'\]: write a dict of .*example \{'accuracy': 0.9\}\.$"),
        ({"on_reject": "wait"}, r"on_reject='wait': write 'skip', 'fail' or 'continue'"),
    ],
)
def test_a_rule_that_cannot_decide_is_refused_early(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainyardError, match=message):
        task(**options)


def test_templates_are_validated_when_they_are_rendered() -> None:
    assert task(metric="{{ params.metric }}", champion="{{ params.to }}").outlets == []


def test_what_a_rejection_needs_and_does_may_be_templates(root: Path) -> None:
    given = judged(root, -0.01, 0.02, 0.03)
    rejecting = task(evaluation=given, confident="{{ params.confident }}", on_reject="{{ params.on_reject }}")
    rejecting.render_template_fields({"params": {"confident": True, "on_reject": "fail"}})
    with pytest.raises(AirflowException, match="is not promoted") as raised:
        rejecting.execute(make_context(rejecting))
    assert raised.type is AirflowException
    accepting = task(evaluation=given, confident="{{ params.confident }}")
    accepting.render_template_fields({"params": {"confident": False}})
    assert accepting.execute(make_context(accepting))["metrics"] == {"accuracy": 0.9}
