from datetime import timedelta
from pathlib import Path

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

with DAG("mnist", schedule=None):
    SparkSubmitOperator(
        task_id="train",
        application=str(Path(__file__).with_name("train.py")),
        retries=2,
        retry_delay=timedelta(seconds=1),
    )
