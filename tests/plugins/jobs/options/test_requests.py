"""A task requests what its options, its connection and its profile say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from airflow.sdk import DAG

from trainyard.errors import TrainyardError
from trainyard.hooks.trainyard import Settings, TrainyardHook
from trainyard.jobs.options import validation
from trainyard.jobs.options.requests import build_job, choose_pool
from trainyard.operators import ExportOperator, Memory, TrainOperator
from trainyard.planning.plan import Plan
from trainyard.planning.profile import Profile
from trainyard.schemas.specs.task_key import TaskKey

YARN = '{"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}'
KEY = TaskKey(dag_id="toy", run_id="r", task_id="train", directory="hdfs://nn/s/runs/toy/r")
GPU = Profile(queue="train", node_label="gpu", gpus_per_worker=1, memory="16g")


@pytest.fixture
def dag(dag_file: Path) -> DAG:
    dag = DAG("toy", schedule=None)
    dag.fileloc = str(dag_file)
    return dag


def plan(dag: DAG, profiles: Mapping[str, Profile] = MappingProxyType({"gpu": GPU}), **options: Any) -> Plan:
    operator = TrainOperator(task_id="train", dag=dag, recipe="toy.recipe:network", dataset="toy/d", **options)
    return operator.plan(KEY, Settings("hdfs://nn/s", profiles=profiles))


@pytest.fixture
def yarn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", YARN)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"conn_type": "trainyard", "extra": "{"}', ": its extra is not a JSON object; write one, for example"),
        ('{"conn_type"', " is not valid JSON where Airflow reads it, in the environment or a secrets backend; write "),
    ],
)
def test_a_connection_that_is_no_json_does_not_break_the_dag(
    monkeypatch: pytest.MonkeyPatch, text: str, problem: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_TRAINYARD_DEFAULT", text)
    assert choose_pool("default_pool", "gpu", "trainyard_default") == "default_pool"
    with pytest.raises(TrainyardError, match=f"^connection 'trainyard_default'{problem}"):
        TrainyardHook().read_profiles()


@pytest.mark.usefixtures("yarn")
def test_a_task_runs_where_its_profile_says(dag: DAG) -> None:
    conf = plan(dag, profile="gpu").conf
    assert conf["spark.yarn.executor.nodeLabelExpression"] == "gpu"
    assert conf["spark.task.resource.gpu.amount"] == "1"
    sizes = [conf[f"spark.executor.{part}"].removesuffix("m") for part in ("memory", "memoryOverhead")]
    assert sum(map(int, sizes)) == 16 * 1024
    assert plan(dag_of(dag), profile="gpu").queue == "train"


@pytest.mark.usefixtures("yarn")
@pytest.mark.parametrize(
    ("profile", "options", "message"),
    [
        (Profile(isolation="docker"), {}, r"placement.isolation='docker' needs image="),
        (Profile(isolation="labels"), {}, r"placement.isolation='labels' needs node_label="),
        (Profile(memory="16g"), {"grow_memory_to": "8g"}, r"grow_memory_to='8g' is less than the container of the fir"),
        (Profile(memory="16"), {}, r"profile: memory='16' is not a valid size"),
    ],
)
def test_what_a_profile_and_a_task_request_together_is_checked(
    dag: DAG, profile: Profile, options: dict[str, Any], message: str
) -> None:
    where = "^TrainOperator 'train': profile='odd' of connection 'trainyard_default': "
    with pytest.raises(TrainyardError, match=where + message):
        plan(dag, {"odd": profile}, profile="odd", **options)


@pytest.mark.usefixtures("yarn")
def test_the_configuration_that_a_skipped_export_is_compared_by_has_that_of_the_profile(dag: DAG) -> None:
    export = ExportOperator(
        task_id="export", dag=dag, prepare="toy.prepare:rows", source="/in", dataset="d", profile="etl",
        conf={"spark.a": "1"},
    )  # fmt: skip
    options = validation.convert(export, export.OPTIONS)
    settings = Settings("/s", profiles={"etl": Profile(conf={"spark.a": "2", "spark.b": "2"})})
    assert build_job(export, options, settings, KEY, {}).conf == {"spark.a": "1", "spark.b": "2"}


def dag_of(dag: DAG) -> DAG:
    """Return another DAG in the same file."""
    other = DAG("other", schedule=None)
    other.fileloc = dag.fileloc
    return other


@pytest.mark.usefixtures("yarn")
def test_a_profile_that_the_connection_lacks_is_refused_on_a_cluster(dag: DAG) -> None:
    with pytest.raises(
        TrainyardError,
        match=r"^TrainOperator 'train': profile='tpu' is not in the extra of connection 'trainyard_default', which has "
        r"gpu; add it, for example \{\"profiles\": \{\"tpu\": \{\"node_label\": \"gpu\"",
    ):
        plan(dag, profile="tpu")


def test_a_dag_with_a_profile_runs_unchanged_on_a_local_master(dag: DAG, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
    assert plan(dag, profile="tpu").conf == plan(dag_of(dag)).conf


def test_memory_may_be_that_of_the_container_in_all(dag: DAG, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", YARN)
    assert plan(dag, memory="8g").job.memory == Memory(heap="1561m", native="6247m")
    export = ExportOperator(
        task_id="export", dag=dag, prepare="toy.prepare:rows", source="hdfs://nn/in", dataset="d",
        memory="{{ params.memory }}", params={"memory": "3g"},
    )  # fmt: skip
    export.memory = "3g"  # rendered
    key = TaskKey(dag_id="toy", run_id="r", task_id="export", directory="hdfs://nn/s/runs/toy/r")
    assert export.plan(key, Settings("hdfs://nn/s")).job.memory == Memory(heap="1792m", native="896m")


EXTRA = '{"storage": "/s", "profiles": {"gpu": {"pool": "gpus"}, "etl": {}}}'


def choose(dag: DAG, **options: Any) -> tuple[str, str]:
    """Return the pools of a task, and of a mapped one."""
    given: dict[str, Any] = {"dag": dag, "recipe": "toy.recipe:network", "dataset": "toy/d"} | options
    task = TrainOperator(task_id="one", **given)
    mapped = TrainOperator.partial(task_id="many", **given).expand(epochs=[1, 2])
    return task.pool, mapped.pool


@pytest.mark.parametrize(
    ("options", "pool"),
    [
        ({"profile": "gpu"}, "gpus"),
        ({"profile": "gpu", "pool": "mine"}, "mine"),
        ({"profile": "etl"}, "default_pool"),
        ({"profile": "tpu"}, "default_pool"),
        ({"profile": "{{ params.profile }}"}, "default_pool"),
        ({"profile": "gpu", "conn_id": "trainyard_other"}, "default_pool"),
        ({}, "default_pool"),
    ],
)
def test_a_task_waits_in_the_pool_of_its_profile(
    dag: DAG, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], pool: str
) -> None:
    """The scheduler has to know it, so it is read while the DAG is parsed."""
    monkeypatch.setenv("AIRFLOW_CONN_TRAINYARD_DEFAULT", f'{{"conn_type": "trainyard", "extra": {EXTRA}}}')
    monkeypatch.setenv("AIRFLOW_CONN_TRAINYARD_OTHER", '{"conn_type": "trainyard", "extra": {"storage": "/s"}}')
    assert choose(dag, **options) == (pool, pool)


def test_the_pool_of_the_profile_in_default_args_is_that_of_all_tasks(
    dag_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_TRAINYARD_DEFAULT", f'{{"conn_type": "trainyard", "extra": {EXTRA}}}')
    dag = DAG("toy", schedule=None, default_args={"profile": "gpu"})
    dag.fileloc = str(dag_file)
    assert choose(dag) == ("gpus", "gpus")


@pytest.mark.parametrize("extra", ["[]", '{"profiles": {"gpu": {"pol": "x"}}}'])
def test_a_connection_that_is_not_valid_is_an_error_of_the_run_and_not_of_the_dag(
    dag: DAG, monkeypatch: pytest.MonkeyPatch, extra: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_TRAINYARD_DEFAULT", f'{{"conn_type": "trainyard", "extra": {extra}}}')
    assert choose(dag, profile="gpu") == ("default_pool", "default_pool")
