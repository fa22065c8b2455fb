"""Exports that do not end by themselves; one of them may not take long."""

from datetime import timedelta

from airflow.sdk import DAG

from trainyard.operators import ExportOperator

with DAG("stuck", schedule=None, params={"source": ""}):
    ExportOperator(
        task_id="export",
        prepare="stuck.prepare:rows",
        source="{{ params.source }}",
        format="json",
        batches="stuck/batches",
    )

with DAG("late", schedule=None, params={"source": ""}):
    ExportOperator(
        task_id="export",
        prepare="stuck.prepare:rows",
        source="{{ params.source }}",
        format="json",
        batches="late/batches",
        execution_timeout=timedelta(seconds=120),
    )
