"""Partitions of predictions are replaced when their source files changed, also by none."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from tests.etl.models import make_task_key
from trainyard.errors import TrainyardError
from trainyard.etl.datasource.writing.partitions import remove_partition
from trainyard.etl.jobs import destinations
from trainyard.files import storage
from trainyard.schemas.datasets import manifest
from trainyard.schemas.datasets.manifest import Provenance
from trainyard.schemas.specs.predict import PredictSpec
from trainyard.schemas.specs.source import Source

pytestmark = pytest.mark.spark
FULL = pytest.mark.full

NULL = "__HIVE_DEFAULT_PARTITION__"
ASCII = "".join(map(chr, range(1, 128)))


def write_partitions(
    spark: Any,
    directory: Path,
    column: str | None = "of",
    predict: Callable[[Any], Any] = lambda rows: rows,
    **options: Any,
) -> dict[str, Any]:
    """Write what a function returns for rows of `directory`/source, partitioned by a column, to `directory`/out."""
    source = str(directory / "source")
    spec = PredictSpec(
        task_key=make_task_key(directory), model="model", source=Source(format="parquet", path=source),
        output=str(directory / "out"), partition_by=column, **({"keys": ("id",)} | options),
    )  # fmt: skip
    return run(spark, spec, spark.read.parquet(source), predict)


def run(spark: Any, spec: PredictSpec, rows: Any, predict: Callable[[Any], Any] = lambda rows: rows) -> dict[str, Any]:
    destinations.check_output(spec)
    files = destinations.list_source(spec)
    return destinations.write(spark, spec, "ab", rows, predict, files).to_xcom()


@pytest.mark.parametrize("uri", ["wasbs://container@account/rows", "oss://bucket/rows"])
def test_a_source_that_only_spark_can_read_has_no_list_of_files(uri: str) -> None:
    spec = PredictSpec(
        task_key=make_task_key(Path("/s")), model="model", source=Source(format="parquet", path=uri), output="/out",
        keys=("id",), partition_by="of",
    )  # fmt: skip
    assert destinations.list_source(spec) is None


def read_partitions(spark: Any, directory: Path) -> dict[int, Any]:
    return {row.id: row.of for row in spark.read.parquet(str(directory / "out")).collect()}


def change_files(folder: Path) -> None:
    for file in folder.glob("**/part-*"):
        file.touch()


@pytest.fixture
def partitioned(spark: Any, tmp_path: Path) -> Path:
    """The directory of a source of four rows in the partitions 0 and 1."""
    spark.range(4).withColumn("of", F.expr("int(id % 2)")).write.partitionBy("of").parquet(str(tmp_path / "source"))
    return tmp_path


@pytest.mark.parametrize(
    ("column", "folders", "partitions"),
    [
        pytest.param("month", ["month=01", "month=02"], ["1", "2"], marks=FULL),
        ("month", ["month=1", f"month={NULL}"], ["1", NULL]),
        pytest.param("share", ["share=0.50", "share=1"], ["0.5", "1.0"], marks=FULL),
        ("at", [f"at=2026-01-0{n} 09%3A00%3A00" for n in (1, 2)], [f"2026-01-0{n} 09:00:00" for n in (1, 2)]),
        ("day", ["region=eu/day=2026-01-01", "region=us/day=2026-01-02"], ["2026-01-01", "2026-01-02"]),
        pytest.param("region", ["region=eu/day=2026-01-01", "region=us/day=2026-01-01"], ["eu", "us"], marks=FULL),
        pytest.param("city", ["city=Zürich", "city=Z%C3%BCrich"], ["Zürich", "ZÃ¼rich"], marks=FULL),
        ("a:b", ["a%3Ab=x%2Fy", "a%3Ab=z"], ["x/y", "z"]),
    ],
)  # fmt: skip
def test_changed_files_are_found_in_folders_whose_names_are_not_the_values(
    spark: Any, tmp_path: Path, column: str, folders: list[str], partitions: list[str]
) -> None:
    spark.range(2).write.parquet(str(tmp_path / "rows"))
    for folder in folders:
        shutil.copytree(tmp_path / "rows", tmp_path / "source" / folder)
    assert sorted(write_partitions(spark, tmp_path, column)["partitions"]) == sorted(partitions)
    assert write_partitions(spark, tmp_path, column)["partitions"] == []
    for folder, partition in zip(folders, partitions, strict=True):
        change_files(tmp_path / "source" / folder)
        assert write_partitions(spark, tmp_path, column)["partitions"] == [partition]


def test_a_partition_is_of_all_folders_with_its_value(spark: Any, tmp_path: Path) -> None:
    for folder in ("region=eu/month=01", "region=us/month=1", "region=us/month=2"):
        spark.range(2).write.parquet(str(tmp_path / "source" / folder))
    assert write_partitions(spark, tmp_path, "month")["partitions"] == ["1", "2"]
    for region in ("eu", "us"):
        change_files(tmp_path / f"source/region={region}/")
        assert "1" in write_partitions(spark, tmp_path, "month")["partitions"]
    shutil.rmtree(tmp_path / "source/region=eu")
    assert write_partitions(spark, tmp_path, "month")["partitions"] == ["1"], "a folder is gone"


def test_partitions_without_a_folder_are_predicted_again_when_any_file_has_changed(spark: Any, tmp_path: Path) -> None:
    spark.range(4).withColumn("of", F.expr("int(id % 2)")).write.parquet(str(tmp_path / "source"))
    assert write_partitions(spark, tmp_path)["partitions"] == ["0", "1"]
    assert write_partitions(spark, tmp_path)["partitions"] == []
    change_files(tmp_path / "source")
    assert write_partitions(spark, tmp_path)["partitions"] == ["0", "1"]


def test_of_a_source_without_files_only_new_partitions_are_predicted(spark: Any, tmp_path: Path) -> None:
    rows = spark.range(4).withColumn("of", F.expr("int(id % 2)"))
    table = Source(format="jdbc", options={"url": "jdbc:x", "dbtable": "t"})
    spec = PredictSpec(
        task_key=make_task_key(tmp_path), model="model", source=table, keys=("id",), output=str(tmp_path / "out"),
        partition_by="of",
    )  # fmt: skip
    written = [run(spark, spec, part)["partitions"] for part in (rows.where("of = 0"), rows, rows)]
    assert written == [["0"], ["1"], []]


def test_a_partition_without_predictions_replaces_the_previous_one(spark: Any, partitioned: Path) -> None:
    assert write_partitions(spark, partitioned)["rows"] == 4
    change_files(partitioned / "source")
    summary = write_partitions(spark, partitioned, predict=lambda rows: rows.where("of = 0"))
    assert (summary["rows"], summary["partitions"]) == (2, ["0", "1"])
    assert read_partitions(spark, partitioned) == {0: 0, 2: 0}
    assert write_partitions(spark, partitioned)["unchanged"] == 2
    assert sorted(path.name for path in partitioned.iterdir()) == ["out", "source"]
    assert sorted(path.name for path in (partitioned / "out").iterdir()) == ["of=0", "of=1"]


def test_partitions_without_any_predictions_can_be_read(spark: Any, partitioned: Path) -> None:
    summary = write_partitions(spark, partitioned, predict=lambda rows: rows.where("false"))
    assert (summary["rows"], summary["partitions"]) == (0, ["0", "1"])
    written = spark.read.parquet(str(partitioned / "out"))
    assert (written.columns, written.count()) == (["id", "of"], 0)


@pytest.mark.parametrize("empty", [False, True])
def test_null_and_the_empty_string_are_one_partition_and_characters_are_escaped_as_spark_does(
    spark: Any, tmp_path: Path, empty: bool
) -> None:
    rows = spark.createDataFrame([(0, ASCII), (1, ""), (2, None), (3, "ü")], "id long, of string")
    rows.write.parquet(str(tmp_path / "source"))
    summary = write_partitions(spark, tmp_path, predict=lambda rows: rows.where("false") if empty else rows)
    assert (summary["rows"], summary["partitions"]) == (0 if empty else 4, sorted([ASCII, NULL, "ü"]))
    rows.write.partitionBy("of").parquet(str(tmp_path / "spark"))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        path.name for path in (tmp_path / "spark").glob("of=*")
    }
    assert read_partitions(spark, tmp_path) == ({} if empty else {0: ASCII, 1: None, 2: None, 3: "ü"})


def test_predictions_that_moved_to_another_partition_are_refused(spark: Any, partitioned: Path) -> None:
    write_partitions(spark, partitioned)
    change_files(partitioned / "source/of=1")
    with pytest.raises(TrainyardError, match=r"rows of the partition of=2, .* leave the column 'of' unchanged there"):
        write_partitions(spark, partitioned, predict=lambda rows: rows.withColumn("of", rows.of + 1))
    assert read_partitions(spark, partitioned) == {0: 0, 1: 1, 2: 0, 3: 1}
    assert sorted(path.name for path in partitioned.iterdir()) == ["out", "source"]


@pytest.mark.parametrize(
    "options",
    [{"keys": ("id", "other")}, {"prepare": "a:b"}, {"postprocess": "a:b"}, {"postprocess_params": {"limit": 3}}],
)
def test_partitions_are_predicted_again_with_other_keys_or_functions(
    spark: Any, partitioned: Path, options: dict[str, Any]
) -> None:
    write_partitions(spark, partitioned)
    for expected in (["0", "1"], []):
        assert write_partitions(spark, partitioned, **options)["partitions"] == expected


@pytest.mark.parametrize("kind", ["float", "double"])
def test_zeros_of_both_signs_are_one_partition(spark: Any, tmp_path: Path, kind: str) -> None:
    rows = spark.createDataFrame([(0, 0.0), (1, -0.0), (2, 0.0), (3, -0.0)], f"id long, of {kind}")
    rows.coalesce(1).write.parquet(str(tmp_path / "source"))
    assert write_partitions(spark, tmp_path)["partitions"] == ["0.0"]
    assert write_partitions(spark, tmp_path)["partitions"] == []
    assert read_partitions(spark, tmp_path) == dict.fromkeys(range(4), 0.0)


def test_partitions_by_a_column_that_has_no_single_values_are_refused(spark: Any, tmp_path: Path) -> None:
    spark.range(4).selectExpr("id", "array(id) as of").write.parquet(str(tmp_path / "source"))
    with pytest.raises(TrainyardError, match=r"partition_by='of' is a column of type array<bigint>; use a column of"):
        write_partitions(spark, tmp_path)


def test_predictions_of_partitions_that_left_the_source_stay_and_are_named(
    spark: Any, partitioned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "stale" not in write_partitions(spark, partitioned)
    shutil.rmtree(partitioned / "source/of=1")
    capsys.readouterr()
    assert write_partitions(spark, partitioned)["stale"] == ["1"]
    assert capsys.readouterr().out == (
        f"WARNING: {partitioned}/out keeps the predictions of partitions that have no rows now: 1. Remove their "
        "folders if they are not wanted.\n"
    )
    change_files(partitioned / "source")
    assert write_partitions(spark, partitioned)["stale"] == ["1"]
    assert read_partitions(spark, partitioned) == {0: 0, 1: 1, 2: 0, 3: 1}


@pytest.mark.parametrize("table", [(), ("of",)])
@pytest.mark.parametrize(
    ("partition_by", "message"),
    [(None, "but no file _PREDICTED, which marks predictions"), ("of", "which is no partition of predictions by 'of'")],
)
def test_a_table_of_spark_is_never_replaced(
    spark: Any, partitioned: Path, table: tuple[str, ...], partition_by: str | None, message: str
) -> None:
    spark.range(3).withColumn("of", F.lit(0)).write.partitionBy(*table).parquet(str(partitioned / "out"))
    with pytest.raises(TrainyardError, match=f"/out' contains '.+', {message}, so nothing is replaced"):
        write_partitions(spark, partitioned, partition_by)
    assert spark.read.parquet(str(partitioned / "out")).count() == 3


def test_a_folder_of_a_partition_that_is_not_marked_is_never_replaced(spark: Any, partitioned: Path) -> None:
    write_partitions(spark, partitioned)
    (partitioned / "out/of=1/_PREDICTED").unlink()
    with pytest.raises(TrainyardError, match=r"/out/of=1' contains 'part-.+', but no file _PREDICTED"):
        write_partitions(spark, partitioned)


def test_a_file_is_never_replaced(spark: Any, partitioned: Path) -> None:
    (partitioned / "out").write_text("years of work")
    with pytest.raises(TrainyardError, match=r"/out' is a file; write another output="):
        write_partitions(spark, partitioned, None)
    assert (partitioned / "out").read_text() == "years of work"


def test_what_was_written_to_the_output_meanwhile_is_not_replaced(spark: Any, partitioned: Path) -> None:
    def predict(rows: Any) -> Any:
        rows.write.parquet(str(partitioned / "out"))
        return rows

    with pytest.raises(TrainyardError, match="no file _PREDICTED"):
        write_partitions(spark, partitioned, None, predict)
    assert sorted(path.name for path in partitioned.iterdir()) == ["out", "source"]


def test_predictions_are_marked_so_that_the_next_run_replaces_them(spark: Any, partitioned: Path) -> None:
    for rows in (4, 2):
        written = write_partitions(spark, partitioned, None, lambda frame, rows=rows: frame.where(f"id < {rows}"))
        assert written["rows"] == rows == len(read_partitions(spark, partitioned))
        assert (partitioned / "out/_PREDICTED").exists()


def test_an_empty_directory_is_an_output(spark: Any, partitioned: Path) -> None:
    (partitioned / "out").mkdir()
    assert write_partitions(spark, partitioned, None)["rows"] == 4


def test_an_empty_directory_does_not_replace_predictions_that_a_killed_run_moved(spark: Any, partitioned: Path) -> None:
    write_partitions(spark, partitioned, None)
    (partitioned / "out").rename(partitioned / ".out.replaced")
    (partitioned / "out").mkdir()

    def fail(rows: Any) -> Any:
        raise ValueError("the model failed")

    with pytest.raises(ValueError, match="the model failed"):
        write_partitions(spark, partitioned, None, fail)
    assert len(read_partitions(spark, partitioned)) == 4
    assert sorted(path.name for path in partitioned.iterdir()) == ["out", "source"]


def test_what_a_killed_run_staged_is_removed_a_day_later(spark: Any, partitioned: Path) -> None:
    abandoned, recent, other = (partitioned / f".{name}" for name in (f"out.{'a' * 32}", f"out.{'b' * 32}", "out.c"))
    for folder in (abandoned, recent, other):
        folder.mkdir()
        (folder / "part").write_text("rows")
    for folder in (abandoned, other):
        os.utime(folder / "part", (0, time.time() - 25 * 60 * 60))
    write_partitions(spark, partitioned, None)
    assert {path.name for path in partitioned.iterdir()} == {"out", "source", recent.name, other.name}


def write_dataset(frame: Any, uri: Path, **options: str) -> None:
    frame.write.format("trainyard").mode("overwrite").options(**options).save(str(uri))


def test_a_dataset_that_was_exported_is_never_replaced(spark: Any, partitioned: Path) -> None:
    exported = Provenance(application="a", written_at="2026-01-01", source="parquet at /in", code_hash="c")
    write_dataset(spark.range(3), partitioned / "out", provenance=exported.model_dump_json())
    with pytest.raises(
        TrainyardError, match=r"/out' is a dataset that was exported from parquet at /in; write another output="
    ):
        write_partitions(spark, partitioned, None, output_format="trainyard")
    assert manifest.list_versions(str(partitioned / "out")) == [1]


def test_a_dataset_with_an_exported_partition_is_not_replaced_after_another_partition_was_dropped(
    spark: Any, partitioned: Path
) -> None:
    exported = Provenance(application="a", written_at="2026-01-01", source="parquet at /in", code_hash="c")
    for day in ("1", "2"):
        write_dataset(spark.range(3), partitioned / "out", partition=day, provenance=exported.model_dump_json())
    remove_partition(str(partitioned / "out"), "1")
    with pytest.raises(TrainyardError, match="is a dataset that was exported from parquet at /in"):
        write_partitions(spark, partitioned, None, output_format="trainyard")


def test_a_dataset_that_no_prediction_wrote_is_never_replaced(spark: Any, partitioned: Path) -> None:
    write_dataset(spark.range(3), partitioned / "out")
    with pytest.raises(TrainyardError, match=r"/out' is a dataset that no prediction wrote, so it is not replaced"):
        write_partitions(spark, partitioned, None, output_format="trainyard")
    assert manifest.list_versions(str(partitioned / "out")) == [1]


def test_predictions_as_a_dataset_are_replaced_by_the_next_run(spark: Any, partitioned: Path) -> None:
    for version in (1, 2):
        assert write_partitions(spark, partitioned, None, output_format="trainyard")["version"] == version


def test_a_swap_whose_second_rename_fails_leaves_the_previous_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, staging = tmp_path / "out", tmp_path / "staging"
    for folder, text in ((output, "previous"), (staging, "new")):
        folder.mkdir()
        (folder / "_PREDICTED").write_text(text)
    move = storage.move

    def fail_to_publish(source: str, target: str) -> None:
        if source == str(staging):
            raise OSError("standby")
        move(source, target)

    monkeypatch.setattr(storage, "move", fail_to_publish)
    with pytest.raises(OSError, match="standby"):
        destinations._swap(str(staging), str(output))
    assert (output / "_PREDICTED").read_text() == "previous"


def test_a_swap_that_another_run_completes_meanwhile_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other run is between its renames when this one looks, and has done both when this one recovers."""
    output, old = tmp_path / "out", tmp_path / ".out.replaced"
    for folder, text in ((output, "new"), (old, "previous")):
        folder.mkdir()
        (folder / "_PREDICTED").write_text(text)
    list_names, before = storage.list_names, [list[str]()]
    monkeypatch.setattr(storage, "list_names", lambda uri: before.pop() if before else list_names(uri))
    destinations._recover(str(output))
    assert (output / "_PREDICTED").read_text() == "new" and (old / "_PREDICTED").read_text() == "previous"


@pytest.mark.parametrize(
    ("table", "conf", "is_kept"),
    [
        ("scores", {"spark.sql.catalogImplementation": "in-memory"}, False),
        ("db.scores", {}, False),
        ("db.scores", {"spark.sql.catalogImplementation": "hive"}, True),
        ("lake.db.scores", {"spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog"}, True),
        ("db.scores", {"spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog"}, False),
        ("db.scores", {"spark.sql.defaultCatalog": "lake", "spark.sql.catalog.lake": "a.B"}, True),
        ("db.scores", {"spark.sql.catalog.spark_catalog": "a.B"}, True),
    ],
)
def test_a_table_needs_a_catalog_that_outlasts_the_application(
    tmp_path: Path, table: str, conf: dict[str, str], is_kept: bool
) -> None:
    spec = PredictSpec(
        task_key=make_task_key(tmp_path), model="model", source=Source(format="parquet", path="s"), keys=("id",),
        output=table, output_format="table",
    )  # fmt: skip
    with (
        nullcontext() if is_kept else pytest.raises(TrainyardError, match=rf"output='{table}'.* would be lost with it")
    ):
        destinations.check_catalog(spec, conf)
