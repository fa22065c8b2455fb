import os
import sys
from datetime import timedelta
from pathlib import Path

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

with DAG("mnist_yarn", schedule=None):
    SparkSubmitOperator(
        task_id="train",
        application=str(Path(__file__).with_name("train.py")),
        yarn_queue="train",
        num_executors=2,
        executor_cores=1,
        executor_memory="512m",
        conf={
            "spark.executor.memoryOverhead": "2560m",
            "spark.yarn.executor.nodeLabelExpression": os.environ.get("PEERS_NODE_LABEL", "gpu"),
            "spark.pyspark.python": f"{sys.prefix}/bin/python",
        },
        yarn_track_via_rm_api=True,
        retries=2,
        retry_delay=timedelta(seconds=1),
    )
