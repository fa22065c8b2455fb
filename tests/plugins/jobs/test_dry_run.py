"""What the tasks of a DAG would submit, before anything runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, task, task_group
from fsspec.implementations.memory import MemoryFileSystem

from trainyard.files import filesystems
from trainyard.jobs import dry_run
from trainyard.operators import (
    EnsembleOperator,
    EvaluateOperator,
    ExportOperator,
    Memory,
    Placement,
    PredictOperator,
    TrainOperator,
)
from trainyard.planning.executors import Executors


class Unreachable(MemoryFileSystem):  # type: ignore[misc]
    """A NameNode that does not answer."""

    def exists(self, path: str, **_: Any) -> bool:
        """Not to be known."""
        raise OSError("no NameNode answers")


def test_storage_that_cannot_be_read_is_a_problem_of_the_stage_which_is_planned_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(filesystems, "_REGISTERED", {"hdfs://far": Unreachable()})
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
    with DAG("toy") as dag:
        EvaluateOperator(
            task_id="evaluate", model="hdfs://far/model", baselines=["hdfs://far/champion"], dataset="toy/dataset",
            metrics=["accuracy"],
        )  # fmt: skip
    (stage,) = dry_run.plan_dag(dag)
    assert stage.problem == (
        "EvaluateOperator 'evaluate': the storage of connection 'trainyard_default' cannot be read: no NameNode answers"
    )
    assert stage.plan is not None and stage.is_temporary
    text = dry_run.as_text([stage])
    assert "dataset = " in text and text.endswith(f"\n\nevaluate: {stage.problem}")


def plan_with(monkeypatch: pytest.MonkeyPatch, host: str = "yarn", **options: Any) -> dry_run.TaskPlan:
    connection = {"conn_type": "spark", "host": host, "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    monkeypatch.setenv(
        "AIRFLOW_CONN_TRAINYARD_DEFAULT", '{"conn_type": "trainyard", "extra": {"storage": "memory://s"}}'
    )
    monkeypatch.setenv("AIRFLOW_VAR_QUEUE", "train")
    with DAG("toy", params={"gpus": 2, "heap": "3g", "default": True}) as dag:
        EvaluateOperator(task_id="evaluate", model="toy/m", dataset="toy/d", metrics=["accuracy"], **options)
    (stage,) = dry_run.plan_dag(dag)
    return stage


def test_templates_in_memory_placement_and_executors_are_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = plan_with(
        monkeypatch, memory=Memory(heap="{{ params.heap }}"),
        placement=Placement(queue="{{ var.value.queue }}"), gpus_per_executor="{{ params.gpus }}",
        executors="{{ params.gpus }}", cores_per_executor="{{ params.gpus }}",
    )  # fmt: skip
    assert stage.plan is not None, stage
    assert (stage.plan.job.memory.heap, stage.plan.queue, stage.plan.job.gpus) == ("3g", "train", 2)
    assert stage.plan.executors == Executors(count=2, cores=2)


def test_the_uri_of_an_ensemble_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
    monkeypatch.setenv(
        "AIRFLOW_CONN_TRAINYARD_DEFAULT", '{"conn_type": "trainyard", "extra": {"storage": "memory://s"}}'
    )
    with DAG("toy") as dag:
        both = EnsembleOperator(task_id="both", models=["toy/a", "toy/b"])
        EvaluateOperator(task_id="evaluate", model=both.output, dataset="toy/d", metrics=["accuracy"])
    (stage,) = dry_run.plan_dag(dag)
    assert stage.plan is not None and stage.plan.job.spec["model"] == "memory://s/toy/both", stage


def test_a_source_that_contains_what_another_task_writes_is_refused(
    monkeypatch: pytest.MonkeyPatch, pipelines: Path
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
    with DAG("toy") as dag:
        dag.fileloc = str(pipelines / "toy" / "dag.py")
        ExportOperator(task_id="export", prepare="toy.prepare:rows", source="shapes", format="binaryFile", dataset="d")
        TrainOperator(task_id="train", recipe="toy.recipe:network", dataset="d", model="shapes/model")
    export, _ = dry_run.plan_dag(dag)
    assert "/shapes' contains what task 'train' writes, 'shapes/model'" in export.problem, export


@pytest.mark.parametrize(
    ("output_format", "output", "written"),
    [
        ("table", "db.predictions", ()),
        ("parquet", "toy/predictions", ("memory://s/toy/predictions",)),
        ("parquet", "toy/{{ ds }}", ("memory://s/toy/{{ ds }}",)),
        ("parquet", "hdfs://nn/predictions", ("hdfs://nn/predictions",)),
        ("{{ params.kind }}", "db.predictions", ()),
    ],
)
def test_a_table_is_not_a_directory_that_is_written_to(
    monkeypatch: pytest.MonkeyPatch, output_format: str, output: str, written: tuple[str, ...]
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
    monkeypatch.setenv(
        "AIRFLOW_CONN_TRAINYARD_DEFAULT", '{"conn_type": "trainyard", "extra": {"storage": "memory://s"}}'
    )
    with DAG("toy", params={"kind": "table"}) as dag:
        PredictOperator(
            task_id="predict", model="toy/m", source="toy/rows", keys=["id"], output=output, output_format=output_format
        )
    (stage,) = dry_run.plan_dag(dag)
    assert stage.writes == ("memory://s", *written)


@pytest.mark.parametrize(
    ("option", "value"),
    [("executors", "{{ ti.xcom_pull('x') }}"), ("memory", Memory(heap="{{ ti.xcom_pull('x') }}")),
     ("cores_per_executor", "{{ ti.xcom_pull('x') }}")],
)  # fmt: skip
def test_a_plan_that_rests_on_a_template_of_the_run_is_known_when_it_runs(
    monkeypatch: pytest.MonkeyPatch, option: str, value: Any
) -> None:
    stage = plan_with(monkeypatch, **{option: value})
    assert (stage.plan, stage.problem) == (None, "")
    assert stage.note == f"its plan is known when {option} can be rendered."


@pytest.mark.parametrize(
    "options",
    [
        {"source": {"table": "sales.orders"}}, {"source": {"format": "jdbc", "options": {"dbtable": "orders"}}},
        {"sources": {"a": {"table": "sales.orders"}, "b": "toy/rows"}}, {"sources": "{{ ti.xcom_pull('x') }}"},
    ],
)  # fmt: skip
def test_a_source_without_a_path_beside_a_template_of_the_run_has_a_plan(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
    monkeypatch.setenv(
        "AIRFLOW_CONN_TRAINYARD_DEFAULT", '{"conn_type": "trainyard", "extra": {"storage": "memory://s"}}'
    )
    later = "{{ ti.xcom_pull('x') }}"
    with DAG("toy") as dag:
        PredictOperator(task_id="p", model="toy/m", prepare=later, prepare_params={"n": later}, **options)
    (stage,) = dry_run.plan_dag(dag)
    assert stage.plan is not None and not stage.problem, stage


@pytest.mark.parametrize("option", ["conn_id", "spark_conn_id"])
def test_a_connection_that_a_param_names_is_read(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    of_default = {"conn_id": "trainyard_default", "spark_conn_id": "spark_default"}[option]
    stage = plan_with(monkeypatch, **{option: f"{{{{ params.default and '{of_default}' }}}}"})
    assert stage.plan is not None, stage


@pytest.mark.parametrize("option", ["conn_id", "spark_conn_id"])
def test_a_plan_of_a_connection_that_the_run_names_is_known_when_it_runs(
    monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    stage = plan_with(monkeypatch, **{option: "{{ ti.xcom_pull('x') }}"})
    assert (stage.plan, stage.problem) == (None, "")
    assert stage.note == f"its plan is known when {option} can be rendered."


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("conn_id", "there is no connection 'other'; create one of type trainyard, with extra "
                    '{"storage": "file:///..."}.'),
        ("spark_conn_id", "there is no Spark connection 'other'; create it, for example: airflow connections add "
                          "other --conn-type spark --conn-host 'local[2]'."),
    ],
)  # fmt: skip
def test_a_missing_connection_is_a_problem_of_the_stage(
    monkeypatch: pytest.MonkeyPatch, option: str, problem: str
) -> None:
    assert plan_with(monkeypatch, **{option: "other"}).problem == f"EvaluateOperator 'evaluate': {option}: {problem}"


def test_the_plans_of_a_task_in_a_mapped_group_are_known_when_it_runs(dag_file: Path) -> None:
    with DAG("toy") as dag:
        dag.fileloc = str(dag_file)

        @task_group
        def group(width: Any) -> None:
            TrainOperator(
                task_id="train", recipe="toy.recipe:network", dataset="d", model="m", recipe_params={"width": width}
            )

        group.expand(width=[1, 2])
    (stage,) = dry_run.plan_dag(dag)
    assert (stage.plan, stage.problem, stage.note) == (None, "", "mapped: its plans are known when it runs.")
    assert dry_run.as_text([stage]) == "group.train: mapped: its plans are known when it runs."


def test_a_value_that_airflow_resolves_when_the_task_runs_is_shown_as_a_template(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
    with DAG("toy") as dag:

        @task
        def choose() -> str:
            return "toy/other"

        EvaluateOperator(
            task_id="evaluate", model="toy/m", dataset="toy/d", metrics=["accuracy"], baselines=[choose().map(str)]
        )
    (stage,) = dry_run.plan_dag(dag)
    assert stage.plan is not None, stage
    assert "{{ rendered when the task runs }}" in dry_run.as_text([stage])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"memory": Memory(heap="{{ params.gpus }}")}, "memory.heap='2' is not a valid size"),
        ({"executors": ("{{ params.gpus }}", 1)}, "executors=['2', 1]: write the smaller number first"),
        ({"placement": Placement(isolation="{{ params.heap }}")}, "write 'yarn', 'labels', 'whole_node' or 'docker'"),
    ],
)
def test_what_a_template_rendered_to_is_checked(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], problem: str
) -> None:
    assert problem in plan_with(monkeypatch, **options).problem
