"""The process that Spark forks Python workers from where a model is applied (`spark.python.daemon.module`).

It imports once what every worker needs, as `trainer/group/daemon.py` does for worker groups.
"""

import gc

import pandas  # noqa: F401  pyarrow imports it with the first array
import pyspark.worker  # noqa: F401
import torchmetrics  # noqa: F401  recipes import it
from pyspark.daemon import manager

import trainyard.etl.evaluation.evaluate
import trainyard.etl.scoring.worker_model  # noqa: F401

if __name__ == "__main__":
    gc.freeze()
    manager()
