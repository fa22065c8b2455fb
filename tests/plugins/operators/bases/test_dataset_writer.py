"""A partition that a template does not name leaves the other partitions alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from trainyard.errors import TrainyardError
from trainyard.operators import ExportOperator
from trainyard.schemas.specs.task_key import TaskKey

KEY = TaskKey(dag_id="toy", run_id="r", task_id="export", directory="file:///s/runs/toy/r")


def export(dag_file: Path, partition: Any, native: bool = True) -> ExportOperator:
    dag = DAG("toy", schedule=None, render_template_as_native_obj=native, params={"day": None})
    dag.fileloc = str(dag_file)
    return ExportOperator(
        task_id="export", dag=dag, prepare="toy.prepare:rows", source="/in", dataset="d", partition=partition
    )


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("day", [None, "", " "])
def test_a_partition_that_renders_to_nothing_is_refused(dag_file: Path, day: str | None, native: bool) -> None:
    """None as the option replaces the whole dataset. Unless values are native, it renders to text."""
    operator = export(dag_file, "{{ params.day }}", native)
    operator.render_template_fields({"params": {"day": day}})
    with pytest.raises(TrainyardError) as refused:
        operator.build_spec(KEY, "file:///s")
    rendered = day if native or day is not None else "None"
    assert str(refused.value) == (
        f"ExportOperator 'export': partition={rendered!r}: its template '{{{{ params.day }}}}' rendered to nothing; "
        "write one that always names a partition. To replace the whole dataset, remove partition."
    )


@pytest.mark.parametrize("partition", ["", " "])
def test_an_empty_partition_is_refused_while_the_dag_is_parsed(dag_file: Path, partition: str) -> None:
    with pytest.raises(TrainyardError, match=f"partition='{partition}': write 1 or more characters other than spaces"):
        export(dag_file, partition)


def test_a_partition_may_be_named_none(dag_file: Path) -> None:
    assert export(dag_file, "None").build_spec(KEY, "file:///s").partition == "None"  # type: ignore[attr-defined]


@pytest.mark.parametrize(("day", "partition"), [("2026-10-01", "2026-10-01"), (20261001, "20261001")])
def test_a_partition_that_renders_to_a_number_is_its_text(dag_file: Path, day: Any, partition: str) -> None:
    operator = export(dag_file, "{{ params.day }}")
    operator.render_template_fields({"params": {"day": day}})
    assert operator.build_spec(KEY, "file:///s").partition == partition  # type: ignore[attr-defined]


def test_without_a_partition_the_whole_dataset_is_written(dag_file: Path) -> None:
    assert export(dag_file, None).build_spec(KEY, "file:///s").partition is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("nothing", [None, "None", ""])
def test_a_partition_that_is_mapped_to_none_is_refused(dag_file: Path, nothing: str | None) -> None:
    """The whole dataset would be replaced, with the partitions of the other tasks."""
    dag = DAG("toy", schedule=None)
    dag.fileloc = str(dag_file)
    mapped = ExportOperator.partial(
        task_id="export", dag=dag, prepare="toy.prepare:rows", source="/in", dataset="d"
    ).expand(partition=["2026-10-01", nothing])
    assert mapped.unmap({"partition": "2026-10-01"}).partition == "2026-10-01"
    with pytest.raises(TrainyardError) as refused:
        mapped.unmap({"partition": nothing})
    assert str(refused.value) == (
        f"ExportOperator 'export': partition={nothing!r} in a mapped task names no partition, and without one the "
        "whole dataset would be replaced, with the partitions of the other tasks; name a partition in each. To replace "
        "the whole dataset, remove partition."
    )
