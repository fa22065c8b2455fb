"""An export that does not end by itself."""

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
