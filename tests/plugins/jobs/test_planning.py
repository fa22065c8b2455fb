"""A job's plan, with what this installation provides."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from trainyard.errors import TrainyardError
from trainyard.hooks.trainyard import TrainyardHook
from trainyard.jobs.operator import JobOperator
from trainyard.operators import EvaluateOperator, ExportOperator, PredictOperator, TrainOperator
from trainyard.planning.plan import Plan
from trainyard.schemas import model_artifact
from trainyard.schemas.specs.task_key import TaskKey

YARN = json.dumps({"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}})


@pytest.fixture(autouse=True)
def _connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", YARN)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_LOCAL", '{"conn_type": "spark", "host": "local[2]"}')


def training(dag_file: Path, **options: Any) -> TrainOperator:
    dag = DAG("toy", schedule=None)
    dag.fileloc = str(dag_file)
    given = {"task_id": "train", "recipe": "toy.recipe:network", "dataset": "toy/dataset", "model": "toy/model"}
    return TrainOperator(dag=dag, **(given | options))


def planned(dag_file: Path, monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any], **options: Any) -> Plan:
    """The plan of a training with a `trainyard` connection that has `extra`."""
    return plan_of(training(dag_file, **options), monkeypatch, extra)


def plan_of(operator: JobOperator, monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any]) -> Plan:
    monkeypatch.setenv("AIRFLOW_CONN_TRAINYARD_DEFAULT", json.dumps({"conn_type": "trainyard", "extra": extra}))
    settings = TrainyardHook().get_conn()
    task_key = TaskKey(dag_id="toy", run_id="r", task_id="train", directory=f"{settings.storage}/runs/toy/r")
    return operator.plan(task_key, settings)


@pytest.mark.parametrize("storage", ["file:///data", "/data", "local:///data"])
def test_storage_on_a_local_disk_is_refused_on_yarn(
    dag_file: Path, monkeypatch: pytest.MonkeyPatch, storage: str
) -> None:
    with pytest.raises(TrainyardError) as refused:
        planned(dag_file, monkeypatch, {"storage": storage})
    assert str(refused.value) == (
        f"TrainOperator 'train': the storage {storage} is a directory of each machine's own, and on YARN the processes "
        "of an application run on several machines. Write a storage that all of them share, for example "
        "hdfs:///trainyard, into the extra of connection 'trainyard_default'; for a directory that every node mounts "
        'at this path, such as NFS, add "shared": true there.'
    )


def test_storage_on_a_local_disk_is_refused_on_a_standalone_cluster(
    dag_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "spark://h", "port": 7077}')
    with pytest.raises(TrainyardError, match="on Spark standalone the processes of an application run on several"):
        planned(dag_file, monkeypatch, {"storage": "file:///data"})
    plan = planned(dag_file, monkeypatch, {"storage": "file:///data", "shared": True})
    assert (plan.spark.master, plan.conf["spark.cores.max"]) == ("spark://h:7077", "1")


def test_an_output_on_a_local_disk_is_refused_on_yarn(dag_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TrainyardError, match=r"^TrainOperator 'train': model=file:///data/model is a directory of"):
        planned(dag_file, monkeypatch, {"storage": "hdfs:///s"}, model="file:///data/model")


@pytest.mark.parametrize(
    ("operator", "options", "named"),
    [
        (TrainOperator, {"mix": [{"dataset": "file:///d", "share": 0.5}]}, "mix.0.dataset=file:///d"),
        (ExportOperator, {"source": "file:///in"}, "source=file:///in"),
        (ExportOperator, {"source": "/in"}, "source=/in"),
        (EvaluateOperator, {"baselines": ["memory://a", "file:///b"]}, "baselines.1=file:///b"),
        (PredictOperator, {"output": "file:///out"}, "output=file:///out"),
    ],
)
def test_any_other_place_on_a_local_disk_is_refused_on_yarn(
    dag_file: Path, monkeypatch: pytest.MonkeyPatch, operator: Any, options: dict[str, Any], named: str
) -> None:
    required: dict[Any, dict[str, Any]] = {
        TrainOperator: {"recipe": "toy.recipe:network", "dataset": "d", "model": "m"},
        ExportOperator: {"prepare": "toy.prepare:rows", "source": "hdfs:///in", "dataset": "d"},
        EvaluateOperator: {"dataset": "d", "model": "m", "metrics": ["accuracy"]},
        PredictOperator: {"source": "hdfs:///in", "model": "m", "keys": ["id"], "output": "o"},
    }
    monkeypatch.setattr(model_artifact, "exists", lambda uri: True)  # a baseline that does not exist is left out
    dag = DAG("toy", schedule=None)
    dag.fileloc = str(dag_file)
    task = operator(task_id="train", dag=dag, **(required[operator] | options))
    message = f"^{operator.__name__} 'train': {named} is a directory of each machine's"
    with pytest.raises(TrainyardError, match=message):
        plan_of(task, monkeypatch, {"storage": "hdfs:///s"})


@pytest.mark.parametrize(
    "extra", [{"storage": "hdfs:///s"}, {"storage": "s3a://b/s"}, {"storage": "file:///nfs", "shared": True}]
)
def test_storage_that_nodes_share_is_accepted_on_yarn(
    dag_file: Path, monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any]
) -> None:
    assert planned(dag_file, monkeypatch, extra).job.storage == extra["storage"]


@pytest.mark.parametrize(
    ("conf", "archives"), [({}, "hdfs:///apps/vocab.zip#vocab"), ({"spark.archives": "hdfs:///x.zip"}, "hdfs:///x.zip")]
)
def test_archives_of_spark_defaults_remain_beside_a_packed_environment_unless_the_application_names_others(
    dag_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, conf: dict[str, str], archives: str
) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.archives hdfs:///apps/vocab.zip#vocab")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    extra = {"storage": "hdfs:///s", "environment": "hdfs:///e.tar.gz"}
    assert planned(dag_file, monkeypatch, extra, conf=conf).conf["spark.archives"] == (
        f"hdfs:///e.tar.gz#environment,{archives}"
    )


def test_storage_on_a_local_disk_is_accepted_on_a_local_master(dag_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(dag_file, monkeypatch, {"storage": "file:///data"}, spark_conn_id="spark_local").job.storage


def test_code_that_is_found_missing_when_templates_are_rendered_names_the_operator(
    dag_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = training(dag_file, recipe="{{ params.recipe }}")
    operator.recipe = "toy.recipe:netwrok"
    with pytest.raises(TrainyardError, match=r"^TrainOperator 'train': 'toy\.recipe:netwrok': .*is 'network'"):
        plan_of(operator, monkeypatch, {"storage": "hdfs:///s"})


def test_the_module_of_an_own_strategy_is_shipped(dag_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (dag_file.parent.parent / "votes.py").write_text("class Vote: ...\n")
    operator = training(dag_file, strategy={"name": "votes:Vote", "params": {"scale": 2}})
    [archive] = plan_of(operator, monkeypatch, {"storage": "hdfs:///s"}).py_files
    assert "votes.py" in zipfile.ZipFile(archive).namelist()


def test_a_plan_needs_no_writable_airflow_home(dag_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", "/dev/null/airflow")
    [archive] = planned(dag_file, monkeypatch, {"storage": "hdfs:///s"}).py_files
    assert Path(archive).exists()


@pytest.mark.parametrize("value", ["yes please", 3])
def test_a_value_of_shared_that_is_neither_true_nor_false_is_refused(
    dag_file: Path, monkeypatch: pytest.MonkeyPatch, value: Any
) -> None:
    with pytest.raises(TrainyardError, match=r"^connection 'trainyard_default': extra shared: write true or false"):
        planned(dag_file, monkeypatch, {"storage": "file:///data", "shared": value})
