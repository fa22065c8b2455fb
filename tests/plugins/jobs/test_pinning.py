"""What a job reads is pinned to a version: that of a result, that of a name, or the newest when it is planned."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from tests.plugins.evaluations import write_model
from trainyard.errors import TrainyardError
from trainyard.jobs.operator import JobOperator
from trainyard.jobs.pinning import drop_missing_start, pin_models
from trainyard.operators import EvaluateOperator, ExportOperator, FeaturizeOperator, PredictOperator, TrainOperator
from trainyard.schemas.references import Reference
from trainyard.schemas.specs.evaluate import EvaluateSpec
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainSpec

MODEL = {"uri": "file:///s/toy/model", "weights_sha256": "a" * 64}
OTHER = {"uri": "file:///s/toy/other", "weights_sha256": "b" * 64}
EXPORT = {"prepare": "toy.prepare:rows", "source": "/in", "dataset": "toy/dataset"}
TRAIN = {"recipe": "toy.recipe:network", "dataset": "toy/dataset", "model": "toy/model"}
EVALUATE = {"model": "toy/model", "dataset": "toy/dataset", "metrics": ["accuracy"]}
PREDICT = {"model": "toy/model", "source": "/in", "keys": ["id"], "output": "toy/out"}


@pytest.fixture
def dag(dag_file: Path) -> DAG:
    dag = DAG("toy", schedule=None)
    dag.fileloc = str(dag_file)
    return dag


def build_spec(operator: JobOperator) -> Any:
    key = TaskKey(dag_id="toy", run_id="r", task_id="t", directory="memory://s/runs/toy/r")
    return operator.build_spec(key, "memory://s")


@pytest.mark.parametrize(
    ("operator", "options"),
    [
        (EvaluateOperator, EVALUATE),
        (PredictOperator, PREDICT),
        (FeaturizeOperator, EXPORT | {"layer": "pool"}),
    ],
)
@pytest.mark.parametrize(
    ("model", "pinned"),
    [
        (MODEL, f"file:///s/toy/model@{'a' * 16}"),
        ("toy/model@1a2b", "memory://s/toy/model@1a2b"),
        ("toy/model", "memory://s/toy/model"),
    ],
)
def test_a_job_applies_the_version_of_a_model_that_a_result_or_a_name_has(
    dag: DAG, operator: type[JobOperator], options: dict[str, Any], model: Any, pinned: str
) -> None:
    """Another run may train the model of the same name meanwhile."""
    spec = build_spec(operator(task_id="t", dag=dag, **options | {"model": model}))
    assert spec.model == pinned
    version = pinned.partition("@")[2] or None
    assert Reference(pinned.partition("@")[0], version) in spec.references()


def test_models_have_the_versions_that_they_have_when_an_application_is_planned(tmp_path: Path) -> None:
    """Another run may promote a champion before the driver reads it."""
    champion, other = str(tmp_path / "champion"), str(tmp_path / "other")
    old, current = (write_model(tmp_path / "champion", weights).folder for weights in (b"old", b"new"))
    beside = write_model(tmp_path / "other", b"other").folder
    spec = {"model": champion, "baselines": [other, f"{champion}@{old[:4]}"], "dataset": "d"}
    pinned = spec | {"model": f"{champion}@{current}", "baselines": [f"{other}@{beside}", f"{champion}@{old}"]}
    assert pin_models(EvaluateSpec, spec) == pinned
    assert pin_models(EvaluateSpec, pinned) == pinned


def test_a_version_that_is_missing_or_ambiguous_is_refused(tmp_path: Path) -> None:
    folders = [write_model(tmp_path, weights).folder for weights in (b"old", b"older")]
    spec = {"model": f"{tmp_path}@0123", "baselines": [], "dataset": "d"}
    with pytest.raises(TrainyardError, match=rf"has no version 0123; it has {folders[0]}, {folders[1]}\. If it was"):
        pin_models(EvaluateSpec, spec)
    with pytest.raises(TrainyardError, match=r"has several versions '6f6c': .* Write more of its digits"):
        pin_models(EvaluateSpec, spec | {"model": f"{tmp_path}@{folders[0][:4]}"})


def test_a_model_is_evaluated_on_the_version_that_it_was_trained_on_if_no_dataset_is_named(tmp_path: Path) -> None:
    model = str(tmp_path / "model")
    write_model(tmp_path / "model", b"new", dataset="/d")
    spec = {"model": model, "baselines": [], "dataset": None, "dataset_version": None}
    pinned = pin_models(EvaluateSpec, spec)
    assert (pinned["dataset"], pinned["dataset_version"]) == ("/d", 1)
    assert pin_models(EvaluateSpec, spec | {"dataset_version": 3})["dataset_version"] == 3
    assert pin_models(EvaluateSpec, spec | {"dataset": "other"})["dataset_version"] is None
    write_model(tmp_path / "model", b"tried", dataset=".run/d")
    with pytest.raises(TrainyardError, match=r"was trained on '.run/d', a path of another process; write dataset="):
        pin_models(EvaluateSpec, spec)


def test_several_models_are_evaluated_on_the_version_that_all_were_trained_on(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in "ab"]
    for name in "ab":
        write_model(tmp_path / name, name.encode(), dataset="/d")
    spec = {"model": None, "models": names, "baselines": [], "dataset": None, "dataset_version": None}
    pinned = pin_models(EvaluateSpec, spec)
    assert (pinned["dataset"], pinned["dataset_version"]) == ("/d", 1)
    assert [name.partition("@")[0] for name in pinned["models"]] == names
    write_model(tmp_path / "b", b"later", dataset="/e")
    with pytest.raises(TrainyardError, match=r"models were trained on several: .*/a@\w+ on /d@1, .*/b@\w+ on /e@1; wr"):
        pin_models(EvaluateSpec, spec)


@pytest.mark.parametrize("option", ["models", "baselines"])
def test_results_of_a_mapped_training_are_models_beside_others(dag: DAG, option: str) -> None:
    given = EVALUATE | ({} if option == "baselines" else {"model": None})
    evaluate = EvaluateOperator(task_id="t", dag=dag, **given | {option: ["c", [MODEL, OTHER]]})
    pinned = [f"{MODEL['uri']}@{'a' * 16}", f"{OTHER['uri']}@{'b' * 16}"]
    assert evaluate.locate_fields()[option] == ["c", *pinned]


def test_baselines_are_scored_in_the_versions_that_other_tasks_returned(dag: DAG) -> None:
    evaluate = EvaluateOperator(task_id="t", dag=dag, **EVALUATE | {"model": MODEL}, baselines=[OTHER, "c"])
    assert evaluate.locate_fields()["baselines"] == [f"{OTHER['uri']}@{'b' * 16}", "c"]


def test_two_trainings_of_one_name_can_be_compared(dag: DAG) -> None:
    earlier = {**MODEL, "weights_sha256": "b" * 64}
    fields = EvaluateOperator(task_id="t", dag=dag, **EVALUATE | {"model": MODEL}, baselines=earlier).locate_fields()
    assert (fields["model"][-17:], fields["baselines"][0][-17:]) == ("@" + "a" * 16, "@" + "b" * 16)


@pytest.mark.parametrize(
    ("options", "version"),
    [
        ({"dataset": "toy/dataset@12"}, 12),
        ({"dataset": "toy/dataset@12", "dataset_version": "12"}, 12),
        ({"dataset": {"uri": "toy/dataset", "version": 3}}, 3),
        ({"dataset": {"uri": "toy/dataset", "version": 3}, "dataset_version": 2}, 2),
        ({"dataset": "toy/dataset"}, None),
    ],
)
def test_the_version_of_a_dataset_is_that_of_its_name_or_of_a_result(
    dag: DAG, options: dict[str, Any], version: int | None
) -> None:
    spec = build_spec(TrainOperator(task_id="t", dag=dag, **TRAIN | options))
    assert (spec.dataset, spec.dataset_version) == ("memory://s/toy/dataset", version)


def test_a_mixed_dataset_and_a_source_have_the_version_of_their_name(dag: DAG) -> None:
    train = build_spec(TrainOperator(task_id="t", dag=dag, **TRAIN, mix=[{"dataset": "old@7", "share": 0.5}]))
    assert (train.mix[0].dataset, train.mix[0].version) == ("memory://s/old", 7)
    export = build_spec(ExportOperator(task_id="e", dag=dag, **EXPORT | {"source": "toy/raw@7"}))
    assert (export.source.path, export.source.format) == ("memory://s/toy/raw", "trainyard")
    assert export.source.options == {"version": "7"}
    csv = build_spec(ExportOperator(task_id="c", dag=dag, **EXPORT | {"source": {"path": "raw@7", "format": "csv"}}))
    assert csv.source.path == "memory://s/raw@7", "no dataset"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": "d@1", "dataset_version": 2}, r"'t': dataset='d@1' and dataset_version=2 are two versions; write"),
        ({"dataset": "d@1a"}, r"'t': dataset='d@1a': the version of a dataset is a number, as in 'd@12'"),
        ({"dataset": "d@V3"}, r"'t': dataset='d@V3': what follows @ is no version; write its number, as in 'NAME@12'"),
        ({"start_from": "m@6F6E"}, r"'t': start_from='m@6F6E': what follows @ is no version: write the first digits"),
        ({"model": "m@12"}, r"'t': model='m@12': '@12' at its end names a version, which is not chosen; write 'm'"),
    ],
)
def test_a_version_that_cannot_be_is_refused_while_the_dag_is_parsed(
    dag: DAG, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TrainyardError, match=message):
        TrainOperator(task_id="t", dag=dag, **TRAIN | options)


@pytest.mark.parametrize(
    ("start_from", "resolved"),
    [
        ("toy/champion", "memory://s/toy/champion"),
        ("toy/champion@1a2b", "memory://s/toy/champion@1a2b"),
        ("hdfs://nn/m", "hdfs://nn/m"),
        (MODEL, f"{MODEL['uri']}@{'a' * 16}"),
        ("weights/resnet.safetensors", "memory://s/weights/resnet.safetensors"),
        (None, None),
    ],
)
def test_a_training_starts_from_a_model(dag: DAG, start_from: Any, resolved: str | None) -> None:
    spec = build_spec(TrainOperator(task_id="t", dag=dag, **TRAIN, start_from=start_from, dataset_since=start_from))
    assert (spec.start_from, spec.dataset_since) == (resolved, resolved)


@pytest.mark.parametrize(("since", "number"), [(3, 3), ("3", 3), (0, 0)])
def test_what_was_added_since_may_be_a_number(dag: DAG, since: Any, number: int) -> None:
    assert build_spec(TrainOperator(task_id="t", dag=dag, **TRAIN, dataset_since=since)).dataset_since == number


def test_a_training_starts_from_scratch_while_there_is_no_champion(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = {"dataset": "/d", "start_from": str(tmp_path / "champion"), "dataset_since": str(tmp_path / "champion")}
    with caplog.at_level(logging.INFO):
        assert drop_missing_start(spec) == spec | {"start_from": None, "dataset_since": None}
    assert "champion' does not exist yet: the training starts without it" in caplog.text
    folder = write_model(tmp_path / "champion", b"w", dataset="/d").folder
    known = drop_missing_start(spec)
    assert known == spec
    pinned = pin_models(TrainSpec, known)
    assert pinned["start_from"] == pinned["dataset_since"] == f"{tmp_path}/champion@{folder}"


def test_a_version_or_a_file_to_start_from_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    """Only the newest version may not exist yet; a file is looked for by the workers."""
    spec = {"dataset": "/d", "start_from": f"{tmp_path}/champion@1a2b", "dataset_since": None}
    with pytest.raises(TrainyardError, match=r"champion has no version 1a2b; it has none"):
        pin_models(TrainSpec, drop_missing_start(spec))
    file = spec | {"start_from": f"{tmp_path}/w.safetensors"}
    assert pin_models(TrainSpec, drop_missing_start(file)) == file


def test_what_was_added_since_a_model_of_another_dataset_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path / "m", b"w", dataset="/other")
    spec = {"dataset": "/d", "start_from": None, "dataset_since": str(tmp_path / "m")}
    with pytest.raises(TrainyardError, match=r"dataset_since='.*/m' was trained on /other, and dataset= is /d; write"):
        drop_missing_start(spec)


@pytest.mark.parametrize("option", ["start_from", "dataset_since"])
def test_a_name_that_is_no_model_is_not_taken_for_a_champion_that_does_not_exist_yet(
    tmp_path: Path, option: str
) -> None:
    (tmp_path / "manifest.json").touch()
    spec = {"dataset": "/d", "start_from": None, "dataset_since": None}
    with pytest.raises(TrainyardError, match=rf"^{option}='{tmp_path}' is no model: there are other files"):
        drop_missing_start(spec | {option: str(tmp_path)})
    with pytest.raises(TrainyardError, match=rf"^{option}='/s/None' has a part without a value"):
        drop_missing_start(spec | {option: "/s/None"})


@pytest.mark.parametrize("name", ["version", "Version"])
def test_two_versions_of_a_source_are_refused(dag: DAG, name: str) -> None:
    source = {"path": "clicks@12", "options": {name: 3}}
    with pytest.raises(TrainyardError, match=r"'t': source='clicks@12' and options=.* have two versions; write one"):
        ExportOperator(task_id="t", dag=dag, **EXPORT | {"source": source})
