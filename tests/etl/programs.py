"""Spark applications of their own, which the tests of failing and competing writers start.

programs.py retry DATASET                  a task is killed at its first attempt, another fails once
programs.py compete DATASET [PARTITION]    plan a write, say so, wait for a line, then carry it out
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession

from trainyard.etl.datasource import source, writer


def session(master: str) -> SparkSession:
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


class Failing(writer.DatasetWriter):
    """Writes all rows of its first attempt; then partition 0 is killed and partition 1 raises."""

    def write(self, iterator):
        context = TaskContext.get()
        output = super().write(iterator)
        if context.attemptNumber() == 0 and context.partitionId() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if context.attemptNumber() == 0 and context.partitionId() == 1:
            raise OSError("the node went away")
        return output


class FailingSource(source.TrainyardDataSource):
    def writer(self, schema, overwrite):
        return Failing(schema, source.WriteOptions.parse(self.options), overwrite)


class Waiting(writer.DatasetWriter):
    """Says that its write has begun, and commits when told to."""

    def commit(self, messages):
        directory = Path(self._options.path)
        with (directory.parent / "ready").open("w") as ready:
            ready.write(self._options.provenance.application)
        with (directory.parent / "go").open() as go:
            go.read()
        super().commit(messages)


class WaitingSource(source.TrainyardDataSource):
    def writer(self, schema, overwrite):
        return Waiting(schema, source.WriteOptions.parse(self.options), overwrite)


def main() -> None:
    role, dataset, *partition = sys.argv[1:]
    spark = session("local[2,3]")
    spark.dataSource.register({"retry": FailingSource, "compete": WaitingSource}[role])
    rows = spark.range(1000, numPartitions=4).selectExpr("id", "double(id) as x")
    provenance = json.dumps({"application": role, "written_at": "2024-01-01T00:00:00+00:00"})
    write = rows.write.format("trainyard").mode("overwrite").option("provenance", provenance)
    for name in partition:
        write.option("partition", name)
    write.save(dataset)


if __name__ == "__main__":
    main()
