"""The table of models: what differs between them, their metrics, and the best."""

from __future__ import annotations

import math
from typing import Any

from tests.plugins.results import output
from trainyard.pages import models
from trainyard.pages.models import Model
from trainyard.pages.runs import Run
from trainyard.report import scores
from trainyard.schemas.results import EvaluationsResult
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainSpec

RUN = Run("toy", "r1", "file:///s/runs/toy/r1", "success")


def record(job: str, map_index: int = -1, status: str = "succeeded", **fields: Any) -> RunRecord:
    key = TaskKey(dag_id="toy", run_id="r1", task_id=job, map_index=map_index, directory=RUN.directory)
    return RunRecord.model_validate(
        {"task_key": key, "job": job, "application": "a1", "started_at": 1.0, "seconds": 7.0, "status": status}
        | {"output": output(job, **fields)}
    )


def several(*evaluations: dict[str, Any]) -> RunRecord:
    """Return the record of an evaluation of several models."""
    alone = [output("evaluate", **({"metrics": {}} | fields)) for fields in evaluations]
    result = {"evaluations": {f"m{number}": one for number, one in enumerate(alone)}, "warnings": []}
    return record("evaluate", 7).model_copy(update={"result": EvaluationsResult.model_validate(result)})


def spec(rate: float, **options: Any) -> TrainSpec:
    key = TaskKey(dag_id="toy", run_id="r1", task_id="train", directory=RUN.directory)
    fields = {"recipe": "toy.recipe:net", "recipe_params": {"rate": rate}, "dataset": "/s/d", "model": "/s/m"}
    return TrainSpec.model_validate({"task_key": key, **fields, "options": options})


def model(rate: str = "0.1", **metrics: float) -> Model:
    return Model(RUN, "train", "ab", {"rate": rate, "seed": "0"}, metrics, 1.0)


def test_a_model_has_the_metrics_of_its_training_and_of_its_evaluations() -> None:
    first, second = "a" * 64, "b" * 64
    records = [
        record("train", 0, weights_sha256=first, metrics={"validation_loss": 0.5, "f1": math.nan}),
        record("train", 1, weights_sha256=second, metrics={"validation_loss": 0.25}),
        record("evaluate", weights_sha256=second, split="test", metrics={"accuracy": 0.9, "auroc": None}),
        record("evaluate", 0, status="failed"),
        several(
            {"weights_sha256": first, "split": "other", "metrics": {"mae": 2.0}},
            {"weights_sha256": second, "split": "validation"},
        ),
    ]
    found = models.build_models("file:///s", RUN, records, {"train@1": spec(0.2)})
    assert [(one.task, one.metrics, one.weights) for one in found] == [
        ("train@0", {"validation_loss": 0.5, "other mae": 2.0}, "a" * 16),
        ("train@1", {"validation_loss": 0.25, "test accuracy": 0.9}, "b" * 16),
    ]
    assert found[1].settings["rate"] == "0.2" and not found[0].settings


def test_evaluations_of_one_split_have_the_names_of_their_tasks() -> None:
    records = [
        record("train", weights_sha256="a" * 64, metrics={}),
        record("evaluate", 0, weights_sha256="a" * 64, split="test", dataset="/s/north", metrics={"accuracy": 0.9}),
        record("evaluate", 1, weights_sha256="a" * 64, split="test", dataset="/s/south", metrics={"accuracy": 0.2}),
    ]
    [found] = models.build_models("file:///s", RUN, records, {})
    assert found.metrics == {"evaluate@0: test accuracy": 0.9, "evaluate@1: test accuracy": 0.2}


def test_versions_of_the_data_and_long_values_are_differences() -> None:
    layers = [[512] * 20, [512] * 20 + [256]]
    records = [record("train", n, weights_sha256=f"{n}" * 64, dataset_version=n + 1, metrics={}) for n in range(2)]
    specs = {f"train@{n}": spec(0.1).model_copy(update={"recipe_params": {"layers": layers[n]}}) for n in range(2)}
    table = models.build_table(models.build_models("/s", RUN, records, specs))
    assert {"data", "layers"} <= set(table.settings) and table.models[0].settings["data"].startswith("d@1")


def test_columns_are_the_settings_that_differ_and_all_metrics() -> None:
    table = models.build_table([model("0.1", loss=0.5), model("0.2", loss=0.4, accuracy=0.9)])
    assert (table.settings, table.metrics) == (["rate"], ["loss", "accuracy"])
    assert models.build_table([]).settings == []


def test_the_best_value_is_known_where_the_direction_is() -> None:
    assert scores.find_direction("kind/validation_loss") == -1 == scores.find_direction("evaluate@0: test kind/loss")
    names = {"loss": 0.5, "validation_loss": 0.5, "accuracy": 0.5, "test accuracy": 0.5, "test mae": 0.5, "rows": 0.5}
    table = models.build_table([model(**names), model(**dict.fromkeys(names, 0.75))])
    assert table.best == {
        "loss": 0.5, "validation_loss": 0.5, "accuracy": 0.75, "test accuracy": 0.75, "test mae": 0.5,
    }  # fmt: skip
    assert models.build_table([model(loss=0.5), model(loss=0.5)]).best == {}, "of equal values none is the best"
