"""Start the daemon that Python workers are forked from before a job needs it."""

from __future__ import annotations

from contextlib import suppress
from threading import Thread

from pyspark.sql import SparkSession

DAEMON = "trainyard.etl.jobs.daemon"


def preload(spark: SparkSession) -> Thread:
    """Let the daemon import what workers need, in a thread, while the driver reads the source and the model.

    Only a daemon with imports of its own is worth it: the one that the plan sets for local masters.

    Returns:
        The thread, which need not be joined.
    """
    thread = Thread(target=_run_worker, args=(spark,), daemon=True)
    if spark.conf.get("spark.python.daemon.module", None) == DAEMON:
        thread.start()
    return thread


def _run_worker(spark: SparkSession) -> None:
    identity = spark.range(1).mapInArrow(lambda batches: batches, "id long")
    with suppress(Exception):  # it is also the error of the first job that needs a worker
        identity.write.format("noop").mode("overwrite").save()
