"""Failed attempts, concurrent writers and full disks leave a dataset consistent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from tests.trainer import datasets
from trainyard.cli.main import main
from trainyard.errors import reason
from trainyard.etl.datasource.options import WriteOptions
from trainyard.etl.datasource.writing import writer
from trainyard.schemas.datasets import manifest, versions

pytestmark = pytest.mark.spark
ETL_TESTS = Path(__file__).parents[1]
ROOT = ETL_TESTS.parent.parent


def start(role: str, dataset: Path, *more: str) -> subprocess.Popen[str]:
    path = os.pathsep.join(str(folder) for folder in (ROOT / "plugins", ROOT, ETL_TESTS))
    environment = os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    code = "import programs; programs.main()"
    command = [sys.executable, "-c", code, role, str(dataset), *more]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.mark.full
def test_killed_and_failed_attempts_leave_no_files(spark, tmp_path):
    process = start("retry", tmp_path / "d")
    output, _ = process.communicate()
    assert process.returncode == 0, output
    dataset = manifest.read_current(str(tmp_path / "d"))
    referenced = {str(tmp_path / "d" / s.path) for split in dataset.splits.values() for s in split.shards}
    assert referenced == {str(path) for path in tmp_path.rglob("*.arrow")}
    frame = spark.read.format("trainyard").load(str(tmp_path / "d"))
    assert sorted(row.id for row in frame.collect()) == list(range(1000))
    assert dataset.splits["train"].statistics["x"].count == 1000


@pytest.mark.full
def test_of_two_concurrent_exports_one_succeeds_and_the_other_names_it(spark, tmp_path):
    os.mkfifo(tmp_path / "ready")
    os.mkfifo(tmp_path / "go")
    process = start("compete", tmp_path / "d")
    assert (tmp_path / "ready").read_text() == "compete"
    provenance = '{"application": "the first", "written_at": "2024-01-02T00:00:00+00:00"}'
    rows = spark.range(10).selectExpr("id")
    rows.write.format("trainyard").mode("append").option("provenance", provenance).save(str(tmp_path / "d"))
    (tmp_path / "go").write_text("go")
    output, _ = process.communicate()
    assert process.returncode != 0
    assert "was written by application the first at 2024-01-02T00:00:00+00:00 while compete was exporting" in output
    assert spark.read.format("trainyard").load(str(tmp_path / "d")).count() == 10
    assert main(["dataset", "verify", str(tmp_path / "d")]) == 0
    assert versions.unreferenced(str(tmp_path / "d")) == []


def test_a_failure_after_the_commit_removes_no_file_of_a_version_even_after_it_was_replaced(tmp_path):
    dataset = datasets.write(tmp_path / "d", {"train": datasets.blobs(10)})
    second = writer.DatasetWriter(StructType(), WriteOptions(dataset), overwrite=True)
    shard = tmp_path / "d" / second.directory / "train.arrow"
    shard.parent.mkdir()
    shard.touch()
    first = manifest.read_current(dataset)
    partition = first.partitions[""].model_copy(update={"directory": second.directory})
    manifest.commit(dataset, first.model_copy(update={"number": 2, "partitions": {"": partition}}))
    manifest.commit(dataset, first.model_copy(update={"number": 3}))
    second.abort([])
    assert shard.exists()
    manifest.remove_version(dataset, 2)
    second.abort([])
    assert not shard.exists()


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_full_disk_is_reported_with_path_and_bytes_and_leaves_no_files(spark, small_disk):
    rows = spark.range(20_000, numPartitions=1).selectExpr("array_repeat(double(id), 64) as x")
    with pytest.raises(Exception) as caught:
        rows.write.format("trainyard").mode("append").option("rowsPerBatch", "500").save(str(small_disk / "d"))
    message = reason(caught.value)
    assert message is not None, caught.value
    assert f"no space left on the device while writing {small_disk}/d/shards/" in message
    assert " bytes. Free some space" in message and "the files of this write are removed" in message
    assert list(small_disk.rglob("*.arrow")) == []
