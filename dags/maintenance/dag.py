"""End the applications on YARN whose task is gone, every ten minutes. Unpause it on a cluster."""

from airflow.sdk import DAG

from trainyard.operators import ReapOperator

with DAG(
    "trainyard_maintenance",
    schedule="*/10 * * * *",
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=True,
    doc_md=__doc__,
):
    ReapOperator(task_id="reap")
