"""The main program of every application: `spark-submit driver.py --spec URI`.

It reads the job spec, runs the job that the spec names in one Spark session, and writes the run record last. It runs
on the cluster, where Airflow is not installed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
import time
import traceback
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import Any

from trainyard.deadlines import end_process
from trainyard.errors import find_java_cause, reason, without_java
from trainyard.files.retries import retry
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.runs.phases import Phase
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs import load_spec
from trainyard.schemas.specs.job import JobSpec
from trainyard.schemas.validation.secrets import mask
from trainyard.stalls import DUMP_SECONDS, StallDetector, get_minutes

FAILED = "TRAINYARD FAILED"
"""In front of each line of a job's error: the task log has it from the run record, and drops these lines."""
MAX_FRAMES = 12
"""The frames of a traceback, from the error up."""

REGISTERED_RATIO = "spark.scheduler.minRegisteredResourcesRatio"
"""The part of the executors that Spark waits for before it starts."""
DEFAULTS = {
    # Spark's default is the zone of the node, and nodes may differ.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # SPARK-58241: a Python UDF over columnar input, such as Parquet, never ends in Spark 4.2.
    "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
    # Spark sets this variable for Python functions of SQL only, and starts a daemon for each environment: an executor
    # would import everything twice where a DataFrame comes from rows of Python.
    "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
}
"""Settings of every session where the Spark configuration says nothing."""


def main() -> int:
    """Run the job of the spec in the command line, and return the exit status."""
    parser = argparse.ArgumentParser(description="Run one Trainyard job inside a Spark application.")
    parser.add_argument("--spec", required=True, help="URI of the job spec")
    uri = parser.parse_args().spec
    try:
        spec = retry(f"read {uri}", partial(load_spec, uri))
    except Exception as failure:
        return _end_without_record(failure)
    record = run(spec)
    if record.status == "failed":
        lines = f"{record.traceback or ''}\n{record.error}".strip().splitlines()
        print("\n".join(f"{FAILED}: {line}" for line in lines), file=sys.stderr, flush=True)
    try:
        retry(f"write the record of {record.task_key.task}", record.save)  # of hours of work
    except Exception as failure:  # perhaps for the reason for which the job has failed
        return _end_without_record(failure, record.error)
    return 0 if record.status == "succeeded" else 1


def _end_without_record(failure: Exception, before: str | None = None) -> int:
    """Print why there is no record, and the error of the job `before`, if it had one. Return the exit status."""
    error, trace = describe_failure(failure)
    lines = [trace, f"There is no run record: {error}", before and f"The job had failed: {before}"]
    print("\n".join(filter(None, lines)), file=sys.stderr, flush=True)
    return 1


def describe_failure(failure: Exception) -> tuple[str, str | None]:
    """Return the error of a job, and its traceback if that says more: not of an error that is for the user.

    Secrets are masked in both.
    """
    if message := reason(failure):
        return mask(message), None
    cause = find_java_cause(str(failure))
    trace = "".join(traceback.format_exception(failure, limit=-MAX_FRAMES))
    return mask(cause or without_java(f"{type(failure).__name__}: {failure}")), mask(without_java(trace))


def run(spec: JobSpec) -> RunRecord:
    """Run the job, and return the record of its success or failure."""
    started, clock = time.time(), time.perf_counter()
    application, result, error, trace = _application_on_yarn(), None, None, None
    stalls: StallDetector | None = None
    try:
        with EventLog(spec.task_key.directory, spec.task_key.task, "driver") as events:
            module, name = spec.ENTRY.split(":")
            importlib.import_module("pyspark.sql")  # by one thread: its modules import each other
            with ThreadPoolExecutor(1) as importer:
                imported = importer.submit(importlib.import_module, module)
                with events.span(Phase.START_SPARK):
                    spark = _session(spec)
                application = spark.sparkContext.applicationId
                with events.span(Phase.IMPORT):
                    job = getattr(imported.result(), name)
            if not spec.HAS_HEARTBEATS:
                stalls = StallDetector(spark.sparkContext, get_minutes(spark.conf))
            with stalls or nullcontext():
                result = job(spark, spec, events)
    except Exception as failure:
        error, trace = (stalls.stall, None) if stalls and stalls.stall else describe_failure(failure)
    return RunRecord(
        task_key=spec.task_key, job=spec.KIND.removesuffix(" spec"), application=application,
        started_at=started, seconds=time.perf_counter() - clock,
        status="failed" if error else "succeeded", output=result, error=error, traceback=trace,
    )  # fmt: skip


def _application_on_yarn() -> str:
    """Return the id of the application on YARN, "" elsewhere: Spark has none while its session fails to start."""
    container = re.match(r"container_(?:e\d+_)?(\d+_\d+)_", os.environ.get("CONTAINER_ID", ""))
    return f"application_{container[1]}" if container else ""


def _session(spec: JobSpec) -> Any:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    # On YARN the files are in the working directory and on the path already.
    warnings.filterwarnings("ignore", message="Failed to add file")
    SparkContext._ensure_initialized()  # before, a SparkConf has no settings of spark-submit
    conf = dict(SparkConf().getAll())
    builder = SparkSession.builder.appName(f"{spec.task_key.dag_id}.{spec.task_key.task}")
    if not spec.HAS_HEARTBEATS and DUMP_SECONDS not in conf:
        builder = builder.config(DUMP_SECONDS, f"{max(1, 30 * get_minutes(conf)):.0f}")  # before its stage is ended
    return builder.config(map=choose_defaults(conf)).getOrCreate()


def choose_defaults(conf: Mapping[str, str]) -> dict[str, str]:
    """Return what a session has where a Spark configuration says nothing.

    Args:
        conf: The Spark configuration: that of the application, and spark-defaults.conf.
    """
    defaults = dict(DEFAULTS)
    if conf.get(REGISTERED_RATIO) == "0":
        defaults["spark.default.parallelism"] = str(count_cores(conf))
    return {name: value for name, value in defaults.items() if name not in conf}


def count_cores(conf: Mapping[str, str]) -> int:
    """Return how many cores an application has when all executors of its start are there, 2 at least.

    This is Spark's default parallelism, into which it divides a source. Spark itself counts the executors that are
    there at that moment, which would have to be waited for; where it waits for none, this takes their place.

    Args:
        conf: The Spark configuration.
    """
    names = ["spark.executor.instances"]
    if conf.get("spark.dynamicAllocation.enabled", "").lower() == "true":
        names += ["spark.dynamicAllocation.minExecutors", "spark.dynamicAllocation.initialExecutors"]
        executors = max(int(conf.get(name, 0)) for name in names)
    else:
        executors = int(conf.get(names[0], 2))
    return max(2, executors * int(conf.get("spark.executor.cores", 1)))


if __name__ == "__main__":
    exit_status = main()
    end_process(exit_status)
    sys.exit(exit_status)
