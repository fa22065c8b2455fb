"""Export the digits of each day as a partition of the dataset, after the day has ended. Unpause it to run it."""

from datetime import datetime

from airflow.sdk import DAG, CronDataIntervalTimetable, task

from trainyard.hooks import TrainyardHook
from trainyard.operators import ExportOperator

with DAG(
    "daily",
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),  # with "@daily", `ds` would have just begun
    start_date=datetime(2026, 1, 1),
    catchup=False,
    is_paused_upon_creation=True,
    doc_md=__doc__,
):

    @task
    def deliver(ds: str) -> dict:
        from daily.source import write

        directory = TrainyardHook().path("daily/source")
        return {"format": "parquet", "path": write(directory, ds), "options": {"basePath": directory}}

    ExportOperator(
        task_id="export",
        prepare="daily.prepare:digits",
        source=deliver(),
        dataset="daily/dataset",
        partition="{{ ds }}",
        expect={"label": {"min": 0, "max": 9, "rows_per_value": 1}},
        splits={"train": 0.6, "validation": 0.2, "test": 0.2},
        split_by="number",  # a digit that returns on a later day stays in its split
    )
