"""The overview of a run: what it says, and that the records support it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plugins.report import example
from trainyard.report import overview
from trainyard.schemas.results import EvaluationsResult
from trainyard.schemas.runs.run_record import RunRecord

DIRECTORY = "file:///runs/digits/r1"
EARLIER = "Epoch 4 of 8 was the best one of train: early_stopping=3 would have ended it after epoch 7 at the latest."


def change(records: list[RunRecord], task: str, **fields: Any) -> list[RunRecord]:
    """Change the output of a task, or the fields of its record."""
    return [example.change_record(record, **fields) if record.task_key.task == task else record for record in records]


def test_the_overview_of_a_run_that_succeeded() -> None:
    records = example.build_records(DIRECTORY)
    line = overview.build_overview(records, example.build_usages(records))
    assert line.outcome == "succeeded" and line.seconds == 83
    assert line.metric and (line.metric.title, line.metric.text) == ("accuracy", "0.9947")
    assert line.metric.note == "0.9833 to 1 at 95 % confidence"
    assert line.busy and (line.busy.resource, line.busy.share) == ("core", 0.5)
    assert line.suggestions == ("To make train faster: more workers would help.",)


def test_a_run_without_stages_has_nothing_to_say() -> None:
    line = overview.build_overview([])
    assert line == overview.Overview("no stage has ended", None, 0.0, None, "", ())


def test_gpus_count_before_cores() -> None:
    records = example.build_records(DIRECTORY)
    busy = overview.build_overview(records, example.build_usages(records, gpus=2)).busy
    assert busy and busy.resource == "GPU" and busy.share == pytest.approx(0.5)


def test_without_an_evaluation_the_metric_is_that_of_the_training() -> None:
    metric = overview.find_metric(example.build_records(DIRECTORY)[:2])
    assert metric and (metric.task, metric.name, metric.note) == ("train", "accuracy", "by train")


def test_a_training_without_other_metrics_has_its_validation_loss() -> None:
    records = change(
        example.build_records(DIRECTORY)[:2], "train", output={"metrics": {"loss": 1, "validation_loss": 2}}
    )
    metric = overview.find_metric(records)
    assert metric and metric.name == "validation_loss"


def test_the_metric_of_an_evaluation_of_several_models_is_that_of_the_first() -> None:
    records = example.build_records(DIRECTORY)
    one = records[2].output
    several = EvaluationsResult(evaluations={"m/a": one, "m/b": one | {"metrics": {"accuracy": 0.5}}})
    records[2] = records[2].model_copy(update={"result": several})
    metric = overview.find_metric(records)
    assert metric and (metric.task, metric.model, metric.name, metric.text) == ("evaluate", "m/a", "accuracy", "0.9947")


def test_the_bottleneck_is_the_longest_stage_and_what_limits_it() -> None:
    records = change(example.build_records(DIRECTORY), "train", seconds=21.0)
    assert overview.describe_bottleneck(records) == (
        "train is the longest stage: 21.0 s of 1 min 23 s. "
        "Compute-bound: 80% of the time goes into forward, backward and optimizer."
    )


def test_a_training_that_hardly_computes_has_no_advice_for_its_steps() -> None:
    records = change(
        example.build_records(DIRECTORY), "train", seconds=21.0, output={"seconds": {"forward": 1.0, "set up": 20.0}}
    )
    assert overview.describe_bottleneck(records) == "train is the longest stage: 21.0 s of 1 min 23 s."
    assert overview.build_overview(records).suggestions == ()


def test_the_bottleneck_may_be_the_time_between_stages() -> None:
    records = change(example.build_records(DIRECTORY), "predict", started_at=example.STARTED_AT + 1000)
    assert overview.describe_bottleneck(records).startswith("15 min 40 s of 16 min 55 s pass between the stages")


@pytest.mark.parametrize(
    ("output", "suggestion"),
    [
        ({"best_epoch": 8}, "The last epoch of train was the best one: more epochs may improve the model."),
        ({"best_epoch": 4}, EARLIER),
        ({"best_epoch": 8, "stopped_early": True}, None),
        ({"best_epoch": 5}, None),
        ({"best_epoch": 1, "epochs": 1}, None),
    ],
)  # fmt: skip
def test_epochs_are_suggested_only_where_the_record_supports_it(output: dict[str, Any], suggestion: str | None) -> None:
    records = change(example.build_records(DIRECTORY), "train", output=output | {"advice": ""})
    assert overview.build_overview(records).suggestions == ((suggestion,) if suggestion else ())


def baseline_above(value: float, interval: list[float] | None, weights: str) -> dict[str, Any]:
    """Return a champion whose accuracy the model exceeds by a value."""
    difference = {"accuracy": {"value": value, "interval": interval}}
    return {
        "uri": "file:///champion", "weights_sha256": weights, "metrics": {}, "intervals": {}, "differences": difference,
    }  # fmt: skip


@pytest.mark.parametrize(("interval", "suggested"), [([-0.01, 0.02], True), ([0.01, 0.02], False), (None, False)])
def test_more_rows_are_suggested_where_two_models_cannot_be_told_apart(
    interval: list[float] | None, suggested: bool
) -> None:
    baseline = baseline_above(0.005, interval, "b")
    records = change(example.build_records(DIRECTORY), "evaluate", output={"baselines": [baseline]})
    text = " ".join(overview.build_overview(records).suggestions)
    assert ("The accuracy differs from that of champion by -0.01 to 0.02" in text) is suggested


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        ("a", "The outputs are identical to those of champion, which has the same weights: choose another baseline."),
        ("b", "The accuracy is that of champion in each part of the rows: evaluate more rows, or compare the two"),
    ],
)
def test_models_without_any_difference_are_told_apart_from_those_with_the_same_weights(weights: str, text: str) -> None:
    output = {"weights_sha256": "a", "baselines": [baseline_above(0.0, [0.0, 0.0], weights)]}
    records = change(example.build_records(DIRECTORY), "evaluate", output=output)
    assert text in " ".join(overview.build_overview(records).suggestions)


def test_a_failure_comes_first_and_warnings_second() -> None:
    records = change(example.build_records(DIRECTORY), "predict", status="failed", error="no")
    records = change(records, "export", output={"warnings": ["odd"]})
    line = overview.build_overview(records)
    assert line.outcome == "failed"
    assert line.suggestions[0] == "Fix the cause of the failure of predict, and clear the task."
    assert line.suggestions[1] == "Read the warnings of export."
