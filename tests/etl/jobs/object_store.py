"""Use datasets in an object store, in a process that has its client, and print the results as JSON."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from tests.etl.jobs import faulty_store
from tests.plugins.files.test_storage import race
from trainyard.errors import TrainyardError
from trainyard.etl.jobs.exporting import export
from trainyard.files import retries, storage
from trainyard.schemas.datasets import manifest, versions
from trainyard.schemas.runs import events
from trainyard.schemas.specs.export import ExportSpec
from trainyard.schemas.specs.predict import PredictSpec
from trainyard.schemas.specs.source import Source
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.trainer import Dataset
from trainyard.trainer.formats.export import _publish

DATASET = "s3://bucket/clicks/dataset"
KEY = TaskKey(dag_id="d", run_id="r", task_id="export", directory="s3://bucket/runs/d/r")


def export_rows(spark: Any, folder: str, rows: int, partition: str) -> dict[str, Any]:
    path = f"{folder}/{partition}"
    spark.range(rows).write.parquet(path)
    spec = ExportSpec(
        task_key=KEY, source=Source(format="parquet", path=path), dataset=DATASET, prepare="prepares:images",
        shapes={"image": (2, 2)}, rows_per_batch=16, shards=2, splits={"train": 1.0}, partition=partition,
    )  # fmt: skip
    log = events.EventLog(KEY.directory, KEY.task, "driver")
    result = export.run(spark, spec, log)
    log.flush()
    return result.to_xcom()


def read_rows(version: int, shuffle: bool) -> list[float]:
    data = Dataset(
        DATASET, columns=["image"], batch_size=32, shuffle=shuffle, manifest=manifest.read_version(DATASET, version)
    )  # fmt: skip
    return [float(row[0, 0]) for batch in data for row in batch["image"]]


def pipeline(folder: str) -> dict[str, Any]:
    from pyspark.sql import SparkSession

    from trainyard.etl.datasource import source

    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    )  # fmt: skip
    source.register(spark)
    exports = [export_rows(spark, folder, 100, "monday"), export_rows(spark, folder, 50, "tuesday")]
    rows = {f"{version} {order}": read_rows(version, order == "shuffled") for version in (1, 2) for order in ORDERS}
    spark_rows = spark.read.format("trainyard").load(DATASET).count()
    with versions.lease(DATASET, 1, "reader"):
        expired_while_leased = versions.expire(DATASET, keep=1, days=0)
    return {
        "versions": [one["version"] for one in exports], "rows": rows, "spark_rows": spark_rows,
        "events": len(list(events.read(KEY.directory))), "expired_while_leased": expired_while_leased,
        "unreferenced": versions.unreferenced(DATASET), "expired": versions.expire(DATASET, keep=1, days=0),
        "left": manifest.list_versions(DATASET),
    }  # fmt: skip


ORDERS = ("in order", "shuffled")


def creators(_: str) -> list[list[bool]]:
    return race("s3://bucket/race", creators=8, rounds=10)


def seen(_: str) -> list[str]:
    """List a directory, let another process write to it, and list it again."""
    import subprocess

    storage.create("s3://bucket/seen/first", b"1")
    before = storage.list_names("s3://bucket/seen")
    code = "from trainyard.files import storage; storage.create('s3://bucket/seen/second', b'1')"
    subprocess.run([sys.executable, "-c", code], check=True)
    return [*before, "|", *storage.list_names("s3://bucket/seen"), str(storage.exists("s3://bucket/seen/second"))]


def ranges(_: str) -> list[str]:
    storage.create("s3://bucket/range", b"0123456789")
    return [storage.read_range("s3://bucket/range", begin, 2).decode() for begin in (0, 4, 8)]


def refusals(_: str) -> list[str]:
    from trainyard.etl.jobs import destinations

    spec = PredictSpec(
        task_key=KEY,
        model="s3://bucket/model",
        source=Source(format="parquet", path="/x"),
        keys=("key",),
        output="s3://bucket/p",
    )
    found = []
    for refused in (lambda: destinations.check_storage(spec), lambda: storage.move("s3://bucket/a", "s3://bucket/c")):
        try:
            refused()
        except TrainyardError as error:
            found.append(str(error))
    return found


def mlflow(folder: str) -> list[str]:
    """Return the names in the order in which they were written."""
    written: list[str] = []
    replace = storage.replace
    storage.replace = lambda uri, data: [written.append(uri), replace(uri, data)][1]  # type: ignore[assignment]
    path = Path(folder, "mlflow")
    for name in ("MLmodel", "requirements.txt", "data/weights"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(name)
    _publish(path, "MLmodel", "s3://bucket/served")
    return [*written, *(file.path for file in storage.find_files("s3://bucket/served"))]


def outages(_: str) -> dict[str, list[str]]:
    """Return how a worker ends if the store fails: while it is read, listed, written, or a file of it is read."""
    import s3fs

    from trainyard.trainer.group.outcome import _classify

    uri, s3fs.S3FileSystem.retries = "s3://bucket/outage/ä", 1
    storage.replace(uri, b"0123456789")
    s3fs.S3FileSystem.clear_instance_cache()
    ended: dict[str, list[str]] = {}
    with faulty_store.run() as faults:
        for code in (*faulty_store.STATUSES, "reset"):
            faults.left = 0
            file = storage.open_input(uri)
            calls = (
                partial(storage.read, uri), partial(storage.list_names, "s3://bucket/outage"), partial(file.read, 1),
                partial(storage.create, f"{uri}-new", b"1"), partial(storage.open_input, uri),
            )  # fmt: skip
            for call in calls:
                faults.code, faults.left = code, 100
                try:
                    call()
                except Exception as error:
                    ended.setdefault(code, []).append(_classify(error))
                else:
                    ended.setdefault(code, []).append("succeeded")
        faults.code, faults.left = "SlowDown", 2
        ended["for two requests"] = [retries.read_file(uri).decode()]
    return ended


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](sys.argv[2])))
