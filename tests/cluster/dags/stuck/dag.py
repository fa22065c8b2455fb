"""Exports that do not end; one of them has a timeout."""

from datetime import timedelta

from airflow.sdk import DAG

from trainyard.operators import ExportOperator

for name, limit in {"stuck": None, "early": None, "late": timedelta(seconds=120)}.items():
    with DAG(name, schedule=None, params={"source": ""}):
        ExportOperator(
            task_id="export",
            prepare="stuck.prepare:rows",
            source="{{ params.source }}",
            format="json",
            dataset=f"{name}/dataset",
            executors=1,
            execution_timeout=limit,
        )
