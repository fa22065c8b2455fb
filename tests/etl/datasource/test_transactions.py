"""Failed attempts, competing writers and full disks leave no trace in a dataset."""

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
from trainyard.etl.datasource import writer
from trainyard.etl.datasource.options import WriteOptions
from trainyard.schemas import manifest, versions

pytestmark = pytest.mark.spark
HERE = Path(__file__).parents[1]
ROOT = HERE.parent.parent


def start(role: str, dataset: Path, *more: str) -> subprocess.Popen[str]:
    path = os.pathsep.join(str(place) for place in (ROOT / "plugins", ROOT, HERE))
    environment = os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    code = "import programs; programs.main()"
    command = [sys.executable, "-c", code, role, str(dataset), *more]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def test_attempts_that_were_killed_or_failed_leave_nothing(spark, tmp_path):
    process = start("retry", tmp_path / "d")
    output, _ = process.communicate()
    assert process.returncode == 0, output
    dataset = manifest.read_current(str(tmp_path / "d"))
    named = {str(tmp_path / "d" / s.path) for split in dataset.splits.values() for s in split.shards}
    assert named == {str(path) for path in tmp_path.rglob("*.arrow")}
    back = spark.read.format("trainyard").load(str(tmp_path / "d"))
    assert sorted(row.id for row in back.collect()) == list(range(1000))
    assert dataset.splits["train"].statistics["x"].count == 1000


def test_of_two_concurrent_exports_one_wins_and_the_other_names_it(spark, tmp_path):
    os.mkfifo(tmp_path / "ready")
    os.mkfifo(tmp_path / "go")
    process = start("compete", tmp_path / "d")
    assert (tmp_path / "ready").read_text() == "compete"
    provenance = '{"application": "the winner", "written_at": "2024-01-02T00:00:00+00:00"}'
    rows = spark.range(10).selectExpr("id")
    rows.write.format("trainyard").mode("append").option("provenance", provenance).save(str(tmp_path / "d"))
    (tmp_path / "go").write_text("go")
    output, _ = process.communicate()
    assert process.returncode != 0
    assert "was written by application the winner at 2024-01-02T00:00:00+00:00 while compete was exporting" in output
    assert spark.read.format("trainyard").load(str(tmp_path / "d")).count() == 10
    assert main(["dataset", "verify", str(tmp_path / "d")]) == 0
    assert versions.unreferenced(str(tmp_path / "d")) == []


def test_a_failure_after_the_commit_takes_nothing_from_a_version_even_one_replaced_since(tmp_path):
    dataset = datasets.write(tmp_path / "d", {"train": datasets.blobs(10)})
    ours = writer.DatasetWriter(StructType(), WriteOptions(dataset), overwrite=True)
    shard = tmp_path / "d" / ours._directory / "train.arrow"
    shard.parent.mkdir()
    shard.touch()
    first = manifest.read_current(dataset)
    mine = first.partitions[""].model_copy(update={"directory": ours._directory})
    manifest.commit(dataset, first.model_copy(update={"number": 2, "partitions": {"": mine}}))
    manifest.commit(dataset, first.model_copy(update={"number": 3}))
    ours.abort([])
    assert shard.exists()
    manifest.remove_version(dataset, 2)
    ours.abort([])
    assert not shard.exists()


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_full_disk_is_told_with_path_and_bytes_and_nothing_is_kept(spark, small_disk):
    rows = spark.range(20_000, numPartitions=1).selectExpr("array_repeat(double(id), 64) as x")
    with pytest.raises(Exception) as caught:
        rows.write.format("trainyard").mode("append").option("rowsPerBatch", "500").save(str(small_disk / "d"))
    message = reason(caught.value)
    assert message is not None, caught.value
    assert f"no space left on the device while writing {small_disk}/d/shards/" in message
    assert "bytes of it" in message and "nothing of this export is kept" in message
    assert list(small_disk.rglob("*.arrow")) == []
