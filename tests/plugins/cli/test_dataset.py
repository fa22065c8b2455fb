"""`trainyard dataset` shows, verifies, compares, expires and cleans datasets."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pyarrow as pa
import pytest

from tests.conftest import ROOT
from trainyard.cli.dataset_text import describe_dataset
from trainyard.cli.main import CLOSED_OUTPUT, main
from trainyard.etl.datasource.columns import Field
from trainyard.etl.datasource.writing.partitions import WriteResult, build_single_partition_manifest
from trainyard.etl.datasource.writing.shards import SplitWriter
from trainyard.etl.datasource.writing.statistics import ColumnStatistics
from trainyard.schemas.datasets import manifest
from trainyard.schemas.datasets.fitted_state import FittedReference
from trainyard.schemas.datasets.manifest import Provenance, Split

FIELDS = (
    Field("image", "tensor", pa.float32(), (2, 2)),
    Field("label", "scalar", pa.int64(), ()),
)


@pytest.fixture
def dataset(tmp_path):
    """A dataset of two splits, made without Spark."""
    return write_version(tmp_path / "d", 1)


def write_version(place, number):
    splits = {}
    for split, rows in (("train", 6), ("test", 3)):
        batch = pa.record_batch(
            {
                "image": pa.FixedSizeListArray.from_arrays(pa.array(range(4 * rows), pa.float32()), 4),
                "label": pa.array([row % 2 for row in range(rows)]),
            }
        )
        writer = SplitWriter(str(place), lambda sequence, split=split: f"shards/w{number}/{split}.arrow", FIELDS, 4)
        writer.add(batch)
        statistics = {}
        for field, array in zip(FIELDS, batch.columns, strict=True):
            column = ColumnStatistics()
            column.add(field, array)
            statistics[field.name] = column.summarize(field)
        splits[split] = Split(rows=rows, shards=tuple(writer.close()), statistics=statistics)
    columns = tuple(field.column for field in FIELDS)
    provenance = Provenance(application=f"app-{number}", written_at="2024-01-01T00:00:00+00:00", source="parquet at s")
    result = WriteResult(f"shards/w{number}", columns, "{}", splits, provenance)
    manifest.commit(str(place), build_single_partition_manifest(result, "", number))
    return place


def test_schema_splits_statistics_and_provenance_are_shown(dataset, capsys):
    assert main(["dataset", "show", str(dataset)]) == 0
    shown = capsys.readouterr().out
    for words in ("image  tensor  float  [2, 2]", "split train: 6 rows, 1 shards, 2 record batches", "0:3 1:3"):
        assert words in shown
    assert "parquet at s" in shown and "app-1" in shown


def test_columns_of_indices_have_their_number_of_values(dataset):
    fitted = FittedReference(sha256="a" * 64, sizes={"image": 1001, "label": 2}, labels=("label",))
    shown = [*describe_dataset(manifest.read_current(str(dataset)).model_copy(update={"fitted": fitted}))]
    assert "  image  tensor  float  [2, 2]" in shown
    assert "  label  scalar  int64  2 classes" in shown


def test_json_is_the_manifest(dataset, capsys):
    assert main(["dataset", "show", str(dataset), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["document"] == "dataset manifest"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-8]), "truncated or altered"),
        (lambda file: file.write_bytes(file.read_bytes().replace(b"\x3f", b"\x40")), "sha256 is"),
        (lambda file: file.unlink(), "is missing"),
    ],
)
def test_verify_names_the_bad_shard_and_fails(dataset, capsys, damage, message):
    damage(dataset / "shards/w1/test.arrow")
    assert main(["dataset", "verify", str(dataset)]) == 1
    shown = capsys.readouterr().out
    assert "verified 2 shards: 1 bad" in shown
    assert "shard shards/w1/test.arrow" in shown and message in shown


def test_clean_removes_files_that_no_version_references(dataset, capsys):
    write_version(dataset, 2)
    (dataset / "shards/w2/stray.arrow").write_bytes(b"")
    (dataset / "shards/dead").mkdir()
    assert main(["dataset", "clean", str(dataset), "--yes"]) == 0
    assert "removed 2 unreferenced" in capsys.readouterr().out
    names = [path.relative_to(dataset / "shards").as_posix() for path in dataset.rglob("*.arrow")]
    assert sorted(names) == ["w1/test.arrow", "w1/train.arrow", "w2/test.arrow", "w2/train.arrow"]


def test_versions_are_listed_compared_and_expired(dataset, capsys):
    write_version(dataset, 2)
    for action in (["versions", str(dataset)], ["diff", f"{dataset}@1"], ["expire", str(dataset), "--keep=1", "--yes"]):
        assert main(["dataset", *action]) == 0
    shown = capsys.readouterr().out
    assert "app-1" in shown and "app-2" in shown
    assert "replaced partitions: (unnamed)" in shown and "split train: 6 -> 6 rows" in shown
    assert "expired 1 versions: 1" in shown
    assert not (dataset / "shards/w1").exists()
    assert main(["dataset", "show", f"{dataset}@1"]) == 1
    assert "has no version 1; it has versions 2 to 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--keep", "0"], "--keep 0 is not valid; write 1 or more: the newest always stays."),
        (["--keep", "-3"], "--keep -3 is not valid; write 1 or more: the newest always stays."),
        (["--keep", "1", "--days", "-5"], "--days -5 is not valid; write a number of days, 0 or more."),
        (["--keep", "1", "--days", "nan"], "--days nan is not valid; write a number of days, 0 or more."),
        (["--keep", "1", "--days", "inf"], "--days inf is not valid; write a number of days, 0 or more."),
    ],
)
def test_numbers_that_expire_nothing_sensible_are_refused(dataset, capsys, options, message):
    write_version(dataset, 2)
    assert main(["dataset", "expire", str(dataset), *options]) == 2
    assert capsys.readouterr().err == f"{message}\n"
    assert manifest.list_versions(str(dataset)) == [1, 2]


def test_versions_have_their_rows_for_programs(dataset, capsys):
    write_version(dataset, 2)
    assert main(["dataset", "versions", str(dataset), "-o", "json"]) == 0
    assert [(one["number"], one["rows"]) for one in json.loads(capsys.readouterr().out)] == [(1, 9), (2, 9)]


def test_two_versions_are_compared(dataset, capsys):
    for number in (2, 3):
        write_version(dataset, number)
    assert main(["dataset", "diff", f"{dataset}@1", f"{dataset}@2", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["old"], found["new"], found["rows"]) == (1, 2, {"train": [6, 6], "test": [3, 3]})


@pytest.mark.parametrize(
    "command", [["expire", "--keep", "1"], ["clean"], ["drop", "a"]], ids=["expire", "clean", "drop"]
)
@pytest.mark.parametrize(
    ("option", "status", "message"),
    [(["--dry-run"], 0, "Dry run: nothing was done. "), ([], 2, "Nothing was done, because nobody can answer here")],
)
def test_nothing_is_removed_without_a_yes(dataset, capsys, command, option, status, message):
    write_version(dataset, 2)
    (dataset / "shards/dead").mkdir()
    current = manifest.read_current(str(dataset))
    partitions = {"a": current.partitions[""], "b": current.partitions[""]}
    manifest.commit(str(dataset), current.model_copy(update={"number": 3, "partitions": partitions}))
    before = sorted(dataset.rglob("*"))
    assert main(["dataset", command[0], str(dataset), *command[1:], *option]) == status
    printed = capsys.readouterr()
    assert message in printed.out + printed.err
    assert sorted(dataset.rglob("*")) == before


def test_the_datasets_of_a_storage_are_listed(dataset, capsys, tmp_path, monkeypatch):
    write_version(tmp_path / "toy" / "clicks", 1)
    write_version(tmp_path / "runs" / "toy" / "r1", 1)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/manifest.json").write_text("{}")
    monkeypatch.setenv(
        "AIRFLOW_CONN_OURS", json.dumps({"conn_type": "trainyard", "extra": {"storage": tmp_path.as_uri()}})
    )
    assert main(["dataset", "list", "--conn-id", "ours"]) == 1
    printed = capsys.readouterr()
    head, *rows = printed.out.splitlines()
    assert head.split() == ["dataset", "version", "rows", "splits", "partitions", "written"]
    assert [row.split()[:7] for row in rows] == [
        ["d", "1", "9", "train", "6,", "test", "3"],
        ["toy/clicks", "1", "9", "train", "6,", "test", "3"],
    ]
    assert printed.err.startswith("cannot be read: broken: ")


@pytest.mark.parametrize("action", ["show", "verify", "diff"])
@pytest.mark.parametrize(
    ("version", "message"), [("9", "has no version 9; it has versions 1 to 1"), ("1a", "the version of a dataset is a")]
)
def test_a_version_that_does_not_exist_is_reported(dataset, capsys, action, version, message):
    assert main(["dataset", action, f"{dataset}@{version}"]) == 1
    assert message in capsys.readouterr().err


def test_a_missing_dataset_is_reported(tmp_path, capsys):
    assert main(["dataset", "show", str(tmp_path)]) == 1
    assert "is not a dataset" in capsys.readouterr().err


@pytest.mark.slow
def test_a_reader_that_closes_the_output_ends_the_command_without_a_traceback(dataset):
    command = [sys.executable, "-m", "trainyard", "dataset", "show", str(dataset)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT / "plugins")}
    )
    process.stdout.close()
    assert (process.stderr.read(), process.wait()) == (b"", CLOSED_OUTPUT)
