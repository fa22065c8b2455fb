"""The process that Spark forks a gang's Python workers from (`spark.python.daemon.module`).

What ranks import is there before they begin: once a node instead of once a rank, and at once for a rank that takes the
place of one that died. The threads that these imports start (OpenBLAS, Arrow's jemalloc) are made for forks. Frozen,
what was imported is passed over by a rank's garbage collector, which would copy each page of it (0.3 s a start).
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
