"""Metrics, datasets and champions, collected from the records of runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.evaluations import evaluation, scores, write_model
from tests.plugins.results import output
from trainyard.errors import TrainyardError
from trainyard.files import uris
from trainyard.models import promotion
from trainyard.pages import products
from trainyard.schemas.evaluation import Scores
from trainyard.schemas.promotion import Rule
from trainyard.schemas.results import EvaluationsResult
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey


def record(job: str, fields: dict[str, Any], status: str = "succeeded") -> RunRecord:
    task_key = TaskKey(dag_id="toy", run_id="r1", task_id=job, directory="file:///runs/toy/r1")
    return RunRecord.model_validate(
        {"task_key": task_key, "job": job, "application": "a1", "started_at": 1.0, "seconds": 1.0, "status": status}
        | {"output": output(job, **fields)}
    )


def record_of_several(evaluations: dict[str, Any]) -> RunRecord:
    return record("evaluate", {}).model_copy(update={"result": EvaluationsResult(evaluations=evaluations)})


def test_every_numeric_metric_is_a_figure_and_evaluations_come_first() -> None:
    first = [
        record("train", {"metrics": {"loss": 0.5, "accuracy": math.nan}}),
        record("evaluate", {"metrics": {"accuracy": 0.9, "auroc": None}}),
    ]
    second = [record("train", {"metrics": {"loss": 0.25}}), record("evaluate", {}, status="failed")]
    figures = products.collect_figures([("r1", first), ("r2", second)])
    assert [(one.task, one.name, one.values) for one in figures] == [
        ("evaluate", "accuracy", {"r1": 0.9}),
        ("train", "loss", {"r1": 0.5, "r2": 0.25}),
    ]
    assert figures[1].chart.series[0].values == (0.5, 0.25)
    assert [one.changes for one in figures] == [False, True], "one value needs no chart"


def test_each_of_several_models_that_a_task_evaluated_has_figures_of_its_own() -> None:
    accuracies = {"m/a": 0.9, "m/b": 0.8}
    evaluations = {name: output("evaluate", metrics={"accuracy": value}) for name, value in accuracies.items()}
    figures = products.collect_figures([("r1", [record_of_several(evaluations)])])
    assert [(one.task, one.values) for one in figures] == [
        ("evaluate m/a", {"r1": 0.9}), ("evaluate m/b", {"r1": 0.8}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("uri", "inside"),
    [
        ("file:///data/toy", True),
        ("file:///data", False),
        ("file:///database/toy", False),
        ("file:///data/../etc/passwd", False),
        ("http://elsewhere/toy", False),
    ],
)
def test_only_uris_below_the_storage_are_read(uri: str, inside: bool) -> None:
    assert uris.is_below("file:///data/", uri) is inside


def test_a_dataset_elsewhere_is_left_out(tmp_path: Path) -> None:
    records = [
        record("export", {"uri": uri, "version": 3, "rows": 40}) for uri in (f"{tmp_path.as_uri()}/a", "s3://b/c")
    ]
    [dataset] = products.collect_datasets(tmp_path.as_uri(), [("r1", records)], {})
    assert (dataset.uri, dataset.by_run, dataset.versions) == (f"{tmp_path.as_uri()}/a", {"r1": (3, 40)}, [])


@pytest.mark.parametrize("error", [OSError, RuntimeError, TrainyardError, ValueError])
def test_a_champion_that_cannot_be_read_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def fail(uri: str) -> bool:
        raise error("the NameNode does not answer")

    monkeypatch.setattr(products.model_artifact, "exists", fail)
    records = [record("predict", {"model": f"{tmp_path.as_uri()}/toy/champion"})]
    unreadable: dict[str, str] = {}
    assert products.collect_champions(tmp_path.as_uri(), records, unreadable) == []
    [why] = unreadable.values()
    assert "the NameNode does not answer" in why


def baseline(uri: str) -> dict[str, Any]:
    return scores(uri, "ab") | {"differences": {}}


def test_the_champion_has_the_reason_of_its_promotion(tmp_path: Path) -> None:
    root = tmp_path.as_uri()
    model = write_model(tmp_path / "toy/model", b"new")
    candidate = evaluation(Scores(**scores(f"{root}/toy/model", model.weights_sha256, accuracy=0.9)))
    champion = promotion.read_champion(f"{root}/toy/champion")
    promotion.publish(candidate, champion, Rule(metric="accuracy"), "there is no champion yet")
    records = [
        record("predict", {"model": f"{root}/toy/champion"}),
        record("evaluate", {"baselines": [baseline(f"{root}/toy/{name}") for name in ("champion", "model")]}),
    ]
    [champion] = products.collect_champions(root, records, {})
    assert champion.uri == f"{root}/toy/champion"
    assert champion.weights == model.weights_sha256[:16]
    assert champion.promotion.why == "there is no champion yet"
