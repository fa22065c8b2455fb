"""The process that Spark forks a group's Python workers from (`spark.python.daemon.module`).

It imports what every worker needs: once a node instead of once a worker, and before a worker is replaced after a
failure. The threads that these imports start (OpenBLAS, Arrow's jemalloc) support forks. `gc.freeze` makes the garbage
collector of a worker skip the imported objects, whose pages it would copy otherwise (0.3 s a start).
"""

import gc

import pandas  # noqa: F401  pyarrow imports it with the first array
import pyspark.worker  # noqa: F401
import torch._dynamo  # noqa: F401  torch imports it with the first optimizer
from pyspark.daemon import manager

import trainyard.trainer.loop.fit  # noqa: F401

if __name__ == "__main__":
    gc.freeze()
    manager()
