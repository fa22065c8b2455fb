"""Datasets in an object store: a real server of S3's protocol, with its client, which `make` installs in .venv/s3."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
CLIENT = ROOT / ".venv" / "s3"
PATHS = (CLIENT, ROOT / "plugins", ROOT, ROOT / "tests" / "etl")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """The environment of a process that finds the server."""
    assert CLIENT.is_dir(), "requirements-s3.txt is not installed in .venv/s3; `make` does it"
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, PATHS)), "PYSPARK_PYTHON": sys.executable, "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1",
    }  # fmt: skip
    command = [sys.executable, "-u", "-m", "tests.etl.jobs.s3_server"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr
            line = next(line for line in server.stderr if "Running on" in line)
            threading.Thread(target=server.stderr.read, daemon=True).start()
            yield environment | {"AWS_ENDPOINT_URL": line.split()[-1]}
        finally:
            server.kill()


@pytest.fixture(scope="module")
def use(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """Return a function that runs one of `object_store.py` with an empty folder, and returns what it found."""
    folder = tmp_path_factory.mktemp("object-store")

    def run(*command: str) -> str:
        ran = subprocess.run(
            [sys.executable, *command], env=environment, cwd=folder, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-8000:]
        return ran.stdout

    run("-c", "import s3fs; s3fs.S3FileSystem().mkdir('bucket')")
    return lambda name: json.loads(run("-m", "tests.etl.jobs.object_store", name, str(folder)).splitlines()[-1])


@pytest.fixture(scope="module")
def pipeline(use: Callable[[str], Any]) -> dict[str, Any]:
    """The results of two exports to one dataset, of 100 and 50 rows, and of what reads it."""
    return use("pipeline")


@pytest.mark.full
@pytest.mark.spark
def test_each_export_adds_a_version(pipeline: dict[str, Any]) -> None:
    assert pipeline["versions"] == [1, 2]


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize(("version", "rows"), [(1, [*range(100)]), (2, [*range(100), *range(50)])])
def test_the_trainer_reads_each_row_once_in_order_and_shuffled(
    pipeline: dict[str, Any], version: int, rows: list[int]
) -> None:
    in_order, shuffled = pipeline["rows"][f"{version} in order"], pipeline["rows"][f"{version} shuffled"]
    assert sorted(in_order) == sorted(shuffled) == sorted(rows)
    assert in_order != shuffled


@pytest.mark.full
@pytest.mark.spark
def test_spark_reads_the_newest_version(pipeline: dict[str, Any]) -> None:
    assert pipeline["spark_rows"] == 150


@pytest.mark.full
@pytest.mark.spark
def test_a_leased_version_stays_and_another_expires(pipeline: dict[str, Any]) -> None:
    assert pipeline["expired_while_leased"] == [] and pipeline["expired"] == [1]
    assert pipeline["left"] == [2] and pipeline["unreferenced"] == []


@pytest.mark.full
@pytest.mark.spark
def test_the_events_of_a_run_are_stored_beside(pipeline: dict[str, Any]) -> None:
    assert pipeline["events"] > 0


def test_of_many_writers_of_one_version_exactly_one_succeeds(use: Callable[[str], Any]) -> None:
    """A version is committed by creating its file, as here."""
    assert [sum(winners) for winners in zip(*use("creators"), strict=True)] == [1] * 10


@pytest.mark.full
def test_what_another_process_wrote_is_seen_at_once(use: Callable[[str], Any]) -> None:
    assert use("seen") == ["first", "|", "first", "second", "True"]


def test_a_part_of_an_object_is_read(use: Callable[[str], Any]) -> None:
    assert use("ranges") == ["01", "45", "89"]


@pytest.mark.full
def test_a_store_that_is_busy_or_unreachable_is_no_error_of_the_user(use: Callable[[str], Any]) -> None:
    ended = use("outages")
    assert ended.pop("for two requests") == ["0123456789"]
    assert {code: set(ends) for code, ends in ended.items()} == {
        "SlowDown": {"lost"}, "ServiceUnavailable": {"lost"}, "InternalError": {"lost"}, "reset": {"lost"},
        "ExpiredToken": {"lost"}, "AccessDenied": {"failed"},
    }  # fmt: skip


def test_what_needs_a_rename_is_refused_by_name_before_anything_is_computed(use: Callable[[str], Any]) -> None:
    parquet, move = use("refusals")
    assert parquet.startswith("output='s3://bucket/p' is on a storage that copies a directory file by file")
    assert "Set output_format='trainyard'" in parquet
    assert move.startswith("'s3://bucket/c' is on a storage that copies a directory file by file")


def test_an_mlflow_model_appears_with_its_index_which_is_written_last(use: Callable[[str], Any]) -> None:
    names = [f"s3://bucket/served/{name}" for name in ("data/weights", "requirements.txt", "MLmodel")]
    assert use("mlflow") == [*names, "MLmodel", "data/weights", "requirements.txt"]
