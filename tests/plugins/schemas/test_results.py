"""The result of a job is typed by the record's job; XCom and the stored record have the fields that it has set."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.evaluations import beside, evaluation, scores
from tests.plugins.results import OUTPUTS, output
from trainyard.errors import TrainyardError
from trainyard.schemas.evaluation import Scores
from trainyard.schemas.references import find_results
from trainyard.schemas.results import DatasetResult, EvaluationResult, EvaluationsResult, ModelResult
from trainyard.schemas.runs import run_record
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs import SPECS
from trainyard.schemas.specs.task_key import TaskKey

KEY = TaskKey(dag_id="d", run_id="r", task_id="t", directory="/s/runs/d/r")
FIELDS = {"task_key": KEY, "application": "a", "started_at": 1.0, "seconds": 1.0}
MATRIX = [[1] * 1000] * 1000
OPTIONAL = {
    "export": {"reused": True},
    "featurize": {"reused": True},
    "train": {"gpu_utilization": 0.5, "gpu_memory_gib": 8.5, "epoch_models": [{"uri": "m", "weights_sha256": "ab"}]},
    "script": {},
    "evaluate": {
        "query": "session", "intervals": {"accuracy": [0.5, 1.0]},
        "baselines": [
            {
                "uri": "b", "weights_sha256": "b" * 64, "metrics": {"accuracy": 1, "auroc": None}, "intervals": {},
                "differences": {"accuracy": {"value": -0.25, "interval": [-0.5, 0.0]}},
            }
        ],
    },
    "predict": {"version": 3, "partitions": ["1"], "unchanged": 2, "stale": ["0"]},
}  # fmt: skip


def build_record(job: str, returned: Any, status: str = "succeeded") -> RunRecord:
    return RunRecord(**FIELDS, job=job, status=status, output=returned)


def test_each_job_has_an_example() -> None:
    assert {f"{job} spec" for job in OUTPUTS} == set(SPECS)


@pytest.mark.parametrize("job", OUTPUTS)
@pytest.mark.parametrize("has_all", [False, True])
def test_a_stored_result_is_the_xcom_and_is_typed_by_the_job(job: str, has_all: bool) -> None:
    returned = output(job, **(OPTIONAL[job] if has_all else {}))
    record = build_record(job, returned)
    assert type(record.result) is SPECS[f"{job} spec"].RESULT
    assert record.output == json.loads(record.to_json())["output"] == returned, "a key that is missing stays missing"
    assert {name: type(value) for name, value in record.output.items()} == {n: type(v) for n, v in returned.items()}
    assert RunRecord.from_json(record.to_json()) == record


def test_numbers_that_json_does_not_have_are_none_and_integers_stay() -> None:
    record = build_record("train", output("train", metrics={"loss": math.inf, "auroc": math.nan, "rows": 3}))
    assert record.output["metrics"] == {"loss": None, "auroc": None, "rows": 3}
    stored = RunRecord.from_json(record.to_json())
    assert isinstance(stored.result, ModelResult) and stored.result.metrics == record.output["metrics"]
    assert type(stored.output["metrics"]["rows"]) is int


def test_what_a_job_returns_is_kept_as_it_is() -> None:
    result = DatasetResult(**output("export"))
    assert build_record("export", result).result is result


@pytest.mark.parametrize("returned", [None, {}, {"uri": "u"}, "x"])
def test_a_failure_has_no_result(returned: Any) -> None:
    record = build_record("train", returned, "failed")
    assert record.result is None and record.output == {}
    assert RunRecord.from_json(record.to_json()) == record


@pytest.mark.parametrize(
    ("job", "returned", "reason"),
    [
        ("script", output("script", nodes=2), "nodes is not a known option; correct its name, or remove it"),
        ("script", {"workers": 2}, "restarts is missing"),
        ("script", None, "write a dict"),
        ("train", output("train", weights_sha256="../x"), "weights_sha256='../x': this value is not valid"),
        ("merge", {"workers": 2}, "there is no job of the kind 'merge'"),
        ("promote", {"uri": "c"}, "promoted is missing; why is missing; candidate is missing; metrics is missing"),
    ],
)
def test_a_record_with_another_result_is_refused_in_a_sentence(
    tmp_path: Path, job: str, returned: Any, reason: str
) -> None:
    key = KEY.model_dump(mode="json") | {"directory": str(tmp_path)}
    head = {"document": RunRecord.KIND, "version": RunRecord.VERSION}
    fields = FIELDS | {"task_key": key, "job": job, "status": "succeeded", "output": returned}
    (tmp_path / "records").mkdir()
    (tmp_path / "records/t.json").write_text(json.dumps(head | fields))
    with pytest.raises(TrainyardError) as refused:
        run_record.read_run(str(tmp_path))
    assert str(refused.value).startswith(f"{tmp_path}/records/t.json is not a valid run record: output=")
    assert str(refused.value).endswith(reason) and "\n" not in str(refused.value)
    unreadable: dict[str, str] = {}
    assert run_record.read_run(str(tmp_path), unreadable) == [] and list(unreadable) == ["records/t.json"]


def test_the_evaluations_of_several_models_have_the_names_of_the_models() -> None:
    """Two versions of one model are told apart by their version, and a model elsewhere has its URI."""
    models = [("memory://s/m/a", "a"), ("memory://s/m/b", "b"), ("memory://s/m/b", "c"), ("file:///elsewhere", "d")]
    results = [
        EvaluationResult(**output("evaluate", uri=uri, weights_sha256=letter * 64, warnings=["It is bad."]))
        for uri, letter in models
    ]
    record = build_record("evaluate", EvaluationsResult.from_evaluations("memory://s", results))
    names = ["m/a", f"m/b@{'b' * 16}", f"m/b@{'c' * 16}", "file:///elsewhere"]
    assert [*record.output["evaluations"]] == names and record.output["evaluations"]["m/a"] == results[0].to_xcom()
    assert record.output["warnings"] == [f"{name}: It is bad." for name in names]
    assert RunRecord.from_json(record.to_json()) == record
    assert {*find_results(record.output)} == {*record.result.references()} if record.result else False


def test_the_result_of_an_evaluation_has_the_metrics_that_are_numbers(tmp_path: Path) -> None:
    metrics = {"accuracy": 0.9, "auroc": None, "confusion_matrix": MATRIX, "toy.metrics:by_class": [0.5] * 1000}
    other = beside("other", "b" * 64, accuracy=(0.0, 0.1, 0.2)).model_copy(update={"metrics": metrics})
    document = evaluation(Scores(**scores(str(tmp_path), "a" * 64, **metrics)), other)
    xcom = EvaluationResult.from_evaluation(document).to_xcom()
    assert xcom["metrics"] == {"accuracy": 0.9, "auroc": None} and xcom["evaluation"] == document.uri
    assert xcom["baselines"] == [
        {
            "uri": "other", "weights_sha256": "b" * 64, "metrics": {"accuracy": 0.9, "auroc": None}, "intervals": {},
            "differences": {"accuracy": {"value": 0.1, "interval": [0.0, 0.2]}},
        }
    ]  # fmt: skip
    assert len(json.dumps(xcom)) < 2000
