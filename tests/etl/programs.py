"""Separate Spark applications for the tests of failing and competing writers.

programs.py retry DATASET                  one task is killed in its first attempt, another raises
programs.py compete DATASET [PARTITION]    begin a write, signal that, wait for a line, then commit
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession

from trainyard.etl.datasource import source
from trainyard.etl.datasource.writing import writer


def start_session(master: str) -> SparkSession:
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


class FailingWriter(writer.DatasetWriter):
    """A writer of which, after all rows of the first attempt, partition 0 is killed and partition 1 raises."""

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
        return FailingWriter(schema, source.WriteOptions.parse(self.options), overwrite)


class WaitingWriter(writer.DatasetWriter):
    """A writer that signals that its tasks are done, and waits before it commits."""

    def commit(self, messages):
        directory = Path(self.options.path)
        with (directory.parent / "ready").open("w") as ready:
            ready.write(self.options.provenance.application)
        with (directory.parent / "go").open() as go:
            go.read()
        super().commit(messages)


class WaitingSource(source.TrainyardDataSource):
    def writer(self, schema, overwrite):
        return WaitingWriter(schema, source.WriteOptions.parse(self.options), overwrite)


def main() -> None:
    role, dataset, *partition = sys.argv[1:]
    spark = start_session("local[2,3]")
    spark.dataSource.register({"retry": FailingSource, "compete": WaitingSource}[role])
    rows = spark.range(1000, numPartitions=4).selectExpr("id", "double(id) as x")
    provenance = json.dumps({"application": role, "written_at": "2024-01-01T00:00:00+00:00"})
    write = rows.write.format("trainyard").mode("overwrite").option("provenance", provenance)
    for name in partition:
        write.option("partition", name)
    write.save(dataset)


if __name__ == "__main__":
    main()
