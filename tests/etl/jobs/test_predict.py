"""Predictions of Spark equal those of the model in one process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import functions as F

from tests.etl.models import make_frame, make_log, make_task_key, train, train_total
from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.etl.jobs import destinations, predict
from trainyard.etl.scoring.scan import DatasetScan
from trainyard.schemas import model_artifact
from trainyard.schemas.datasets import manifest
from trainyard.schemas.datasets.versions import leased_versions
from trainyard.schemas.specs.predict import PredictSpec
from trainyard.schemas.specs.source import Source
from trainyard.trainer.model.artifacts.trained_model import load_model

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return train(tmp_path_factory.mktemp("model"), "linear", limit=3)


def predict_rows(spark: Any, model: str, directory: Path, rows: Any, output: Any, **options: Any) -> dict[str, Any]:
    """Write rows as the source, and run the job."""
    source = str(directory / "source")
    make_frame(spark, rows).write.mode("overwrite").parquet(source)
    return run_job(spark, model, directory, source, output, **options)


def run_job(spark: Any, model: str, directory: Path, source: str, output: Any, **options: Any) -> dict[str, Any]:
    spec = PredictSpec(
        task_key=make_task_key(directory), model=model, source=Source(format="parquet", path=source),
        output=str(output), **{"keys": ("key",), **options},
    )  # fmt: skip
    return predict.run(spark, spec, make_log(spec)).to_xcom()


def predict_locally(model: str, rows: datasets.Columns) -> dict[str, int]:
    classes = load_model(model).output(rows).argmax(1).numpy()
    return {f"k{i}": int(number) for i, number in enumerate(classes)}


def group_by_key(rows: Any, column: str = "class_") -> dict[str, Any]:
    return {row.key: row[column] for row in rows.collect()}


@pytest.mark.parametrize("rows_per_batch", [None, 17])
def test_predictions_are_parquet_with_the_keys_of_their_rows(
    spark: Any, model: str, tmp_path: Path, rows_per_batch: int | None
) -> None:
    rows = datasets.blobs(100, seed=7)
    _, artifact = model_artifact.find(model)
    pinned = f"{model}@{artifact.folder}"  # as the plan has it
    summary = predict_rows(spark, pinned, tmp_path, rows, tmp_path / "out", rows_per_batch=rows_per_batch)
    assert summary["rows"] == 100 and summary["columns"] == ["key", "class_"]
    assert (summary["model"], summary["weights_sha256"]) == (model, artifact.weights_sha256)
    assert group_by_key(spark.read.parquet(str(tmp_path / "out"))) == predict_locally(model, rows)


def test_all_columns_that_the_model_does_not_read_are_kept_by_default(spark: Any, model: str, tmp_path: Path) -> None:
    rows = datasets.blobs(20, seed=7)
    summary = predict_rows(spark, model, tmp_path, rows, tmp_path / "out", keys=())
    taken = {column.name for column in load_model(model).artifact.inputs}
    assert summary["columns"] == [*(name for name in make_frame(spark, rows).columns if name not in taken), "class_"]


@pytest.mark.parametrize(("keys", "rows"), [((), 1 << 16), (("image",), 510), (("x",), 1 << 16)])
def test_a_batch_that_is_read_has_fewer_rows_if_columns_that_are_kept_are_large(
    spark: Any, model: str, keys: tuple[str, ...], rows: int
) -> None:
    frame = make_frame(spark, datasets.blobs(1)).withColumn("image", F.lit(b""))
    assert predict._choose_batch_rows(frame, load_model(model).artifact.inputs, keys) == rows


@pytest.mark.parametrize(("keys", "few"), [((), False), (("text",), True)])
def test_a_batch_of_a_dataset_has_fewer_rows_if_texts_that_are_kept_are_long(
    spark: Any, model: str, tmp_path: Path, keys: tuple[str, ...], few: bool
) -> None:
    frame = make_frame(spark, datasets.blobs(8)).withColumn("text", F.expr("repeat('a', 1 << 20)"))
    frame.write.format("trainyard").mode("append").save(str(tmp_path))
    scan = DatasetScan(spark, str(tmp_path))
    assert (predict._choose_batch_rows(scan, load_model(model).artifact.inputs, keys) < 10) == few


def test_predict_keeps_all_columns_by_default(spark: Any, model: str) -> None:
    rows = datasets.blobs(50, seed=3)
    predicted = predict.predict(make_frame(spark, rows), model)
    assert predicted.columns == ["key", "of", "x", "label", "class_"]
    assert group_by_key(predicted) == predict_locally(model, rows)


def test_rows_keep_their_timestamps(spark: Any, model: str) -> None:
    frame = make_frame(spark, datasets.blobs(3)).withColumn("at", F.expr("timestamp'2026-03-29 02:30:00'"))
    frame = frame.withColumn("local", F.expr("timestamp_ntz'2026-03-29 02:30:00'"))
    predicted = predict.predict(frame, model).select("key", "at", "local")
    assert predicted.collect() == frame.select("key", "at", "local").collect()


def test_postprocess_changes_what_is_written(spark: Any, model: str, tmp_path: Path) -> None:
    rows = datasets.blobs(40, seed=7)
    predict_rows(
        spark, model, tmp_path, rows, tmp_path / "out", postprocess="tests.etl.prepares:only",
        postprocess_params={"class_": 1},
    )  # fmt: skip
    written = spark.read.parquet(str(tmp_path / "out"))
    assert written.columns == ["key"]
    assert {row.key for row in written.collect()} == {
        key for key, class_ in predict_locally(model, rows).items() if class_ == 1
    }


def test_predictions_are_written_as_a_dataset(spark: Any, model: str, tmp_path: Path) -> None:
    rows = datasets.blobs(40, seed=7)
    summary = predict_rows(spark, model, tmp_path, rows, tmp_path / "out", output_format="trainyard")
    assert summary["rows"] == 40 and summary["version"] == manifest.read_current(str(tmp_path / "out")).number
    assert group_by_key(spark.read.format("trainyard").load(str(tmp_path / "out"))) == predict_locally(model, rows)


@pytest.mark.parametrize("kind", ["parquet", "trainyard"])
def test_predictions_without_rows_are_written_with_a_warning(spark: Any, model: str, tmp_path: Path, kind: str) -> None:
    fault = {"postprocess": "tests.etl.prepares:only", "postprocess_params": {"class_": 99}}
    for options, count in ((fault, 0), ({}, 40), (fault, 0)):
        summary = predict_rows(
            spark, model, tmp_path, datasets.blobs(40), tmp_path / "out", output_format=kind, **options
        )
        rows = spark.read.format(kind).load(str(tmp_path / "out"))
        assert summary["rows"] == rows.count() == count and rows.columns[0] == "key"
        assert [text.partition(":")[0] for text in summary["warnings"]] == ["there are no predictions"] * (not count)


def test_the_version_that_is_scanned_does_not_expire_meanwhile(spark: Any, model: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "dataset")
    make_frame(spark, datasets.blobs(40, seed=7)).write.format("trainyard").mode("append").save(uri)
    spec = PredictSpec(
        task_key=make_task_key(tmp_path), model=model, keys=("key",), output=str(tmp_path / "out"),
        source=Source(format="trainyard", path=uri), postprocess="tests.etl.prepares:leased",
        postprocess_params={"dataset": uri},
    )  # fmt: skip
    predict.run(spark, spec, make_log(spec))
    assert set(group_by_key(spark.read.parquet(spec.output), "versions").values()) == {"1"}
    assert leased_versions(uri, time.time()) == set()


def test_the_rows_of_a_dataset_are_a_source(spark: Any, model: str, tmp_path: Path) -> None:
    rows, uri = datasets.blobs(40, seed=7), str(tmp_path / "dataset")
    frame = make_frame(spark, rows).selectExpr("*", "if(of = 0, 'test', 'train') as split")
    frame.write.format("trainyard").mode("append").option("splitColumn", "split").save(uri)
    sources = {
        "scanned": {}, "prepared": {"prepare": "tests.etl.prepares:rows"}, "partitioned": {"partition_by": "of"},
    }  # fmt: skip
    for name, options in sources.items():
        spec = PredictSpec(
            task_key=make_task_key(tmp_path), model=model, keys=("key",), output=str(tmp_path / name),
            source=Source(format="trainyard", path=uri, options={"split": "test"}), **options,
        )  # fmt: skip
        assert predict.run(spark, spec, make_log(spec)).rows == 20
        expected = predict_locally(model, rows)
        found = group_by_key(spark.read.parquet(str(tmp_path / name)))
        assert found == {key: expected[key] for key in found} and len(found) == 20


def test_predictions_are_written_as_a_table_which_the_next_run_replaces(
    spark: Any, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of this session's catalog, which is refused elsewhere, is in memory."""
    monkeypatch.setattr(destinations, "check_catalog", lambda *_: None)
    location = str(tmp_path / "warehouse")
    spark.sql(f"CREATE DATABASE scores LOCATION '{location}'")
    try:
        for count in (40, 30):
            rows = datasets.blobs(count, seed=7)
            summary = predict_rows(spark, model, tmp_path, rows, "scores.predicted", output_format="table")
            assert summary["rows"] == count
            assert group_by_key(spark.table("scores.predicted")) == predict_locally(model, rows)
        assert not list((tmp_path / "run").glob("staged-*"))
    finally:
        spark.sql("DROP DATABASE scores CASCADE")


def test_only_new_and_changed_partitions_are_predicted_for(spark: Any, model: str, tmp_path: Path) -> None:
    rows, source, out = datasets.blobs(30, seed=7), tmp_path / "source", tmp_path / "out"
    every = make_frame(spark, rows)

    def write(of: int) -> None:
        every.where(f"of = {of}").drop("of").write.mode("overwrite").parquet(str(source / f"of={of}"))

    def run() -> dict[str, Any]:
        return run_job(spark, model, tmp_path, str(source), out, partition_by="of")

    write(0)
    assert run()["partitions"] == ["0"]
    before = {path: path.stat().st_mtime_ns for path in (out / "of=0").iterdir()}
    write(1)
    second = run()
    assert second["partitions"] == ["1"] and second["unchanged"] == 1
    assert {path: path.stat().st_mtime_ns for path in (out / "of=0").iterdir()} == before
    assert group_by_key(spark.read.parquet(str(out))) == predict_locally(model, rows)
    assert run() | {"rows": 0, "unchanged": 2, "partitions": []} == run()
    write(0)
    assert run()["partitions"] == ["0"], "its files changed"
    assert group_by_key(spark.read.parquet(str(out))) == predict_locally(model, rows)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


def add_late_file(spark: Any, frame: Any, source: str) -> Any:
    """Return the rows unchanged, and add a file to their source, as another job may meanwhile."""
    late = Path(source, "of=1", "late.parquet")
    if not late.exists():
        shutil.copy(next(Path(source, "of=1").glob("part-*")), late)
    return frame


def test_a_file_that_arrives_while_the_job_runs_is_predicted_for_by_the_next_run(
    spark: Any, model: str, tmp_path: Path
) -> None:
    source, options = str(tmp_path / "source"), {"partition_by": "of", "prepare": f"{__name__}:add_late_file"}
    options["prepare_params"] = {"source": source}
    make_frame(spark, datasets.blobs(20)).coalesce(1).write.partitionBy("of").parquet(source)
    assert run_job(spark, model, tmp_path, source, tmp_path / "out", **options)["rows"] == 20
    assert run_job(spark, model, tmp_path, source, tmp_path / "out", **options)["partitions"] == ["1"]
    assert spark.read.parquet(str(tmp_path / "out")).count() == 30


KILLED = """
import os, signal, sys
from trainyard.files import storage
from trainyard.etl.jobs import destinations

staging, output, moves = sys.argv[1], sys.argv[2], int(sys.argv[3])
move, remove = storage.move, storage.remove

def kill(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)

def move_and_count(*arguments):
    global moves
    if moves == 0:
        kill()
    moves -= 1
    move(*arguments)

storage.move, storage.remove = move_and_count, kill
destinations._swap(staging, output)
"""


def kill_in_swap(staging: Path, output: Path, moves: int) -> None:
    """Replace `output` in a process that is killed after so many renames, before the one or the removal after them."""
    command = [sys.executable, "-c", KILLED, str(staging), str(output), str(moves)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3] / "plugins")}
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL


@pytest.mark.parametrize("moves", [1, *(pytest.param(moves, marks=pytest.mark.full) for moves in (0, 2))])
@pytest.mark.parametrize("partition_by", [None, "of"])
def test_a_run_recovers_what_a_killed_one_left_between_its_renames(
    spark: Any, model: str, tmp_path: Path, moves: int, partition_by: str | None
) -> None:
    rows, source, out = datasets.blobs(30, seed=7), tmp_path / "source", tmp_path / "out"
    make_frame(spark, rows).write.partitionBy("of").parquet(str(source))
    run_job(spark, model, tmp_path, str(source), out, partition_by=partition_by)
    expected = group_by_key(spark.read.parquet(str(out)))
    replaced = out / "of=1" if partition_by else out
    shutil.copytree(replaced, tmp_path / "new")
    kill_in_swap(tmp_path / "new", replaced, moves)
    assert replaced.exists() == (moves != 1)
    if partition_by:
        left = spark.read.parquet(str(out))
        assert left.columns == ["key", "class_", "of"], "readers see no more than predictions meanwhile"
    if partition_by:
        shutil.rmtree(source / "of=1")  # so that the run does not predict for this partition again
        assert run_job(spark, model, tmp_path, str(source), out, partition_by="of")["unchanged"] == 1
    else:
        spark.range(3).selectExpr("string(id) as key").write.parquet(str(tmp_path / "other"))
        with pytest.raises(TrainyardError, match="column"):
            run_job(spark, model, tmp_path, str(tmp_path / "other"), out)
    assert group_by_key(spark.read.parquet(str(out))) == expected, "nothing is lost"
    assert not [path for path in [*tmp_path.iterdir(), *out.iterdir()] if path.name.endswith("replaced")]


def test_other_weights_predict_for_all_partitions_again(spark: Any, model: str, tmp_path: Path) -> None:
    rows, source = datasets.blobs(20, seed=7), str(tmp_path / "source")
    make_frame(spark, rows).write.partitionBy("of").parquet(source)
    assert run_job(spark, model, tmp_path, source, tmp_path / "out", partition_by="of")["partitions"] == ["0", "1"]
    other = train(tmp_path / "other", "linear", limit=3, learning_rate=0.001)
    assert run_job(spark, other, tmp_path, source, tmp_path / "out", partition_by="of")["partitions"] == ["0", "1"]
    assert group_by_key(spark.read.parquet(str(tmp_path / "out"))) == predict_locally(other, rows)


def test_a_key_that_is_also_an_output_is_refused(spark: Any, model: str) -> None:
    rows = make_frame(spark, datasets.blobs(5)).withColumnRenamed("of", "class_")
    with pytest.raises(TrainyardError, match="'class_' is both a key and an output of the model"):
        predict.predict(rows, model)


def test_a_key_that_differs_from_an_output_by_case_is_refused(spark: Any, model: str) -> None:
    rows = make_frame(spark, datasets.blobs(5)).withColumnRenamed("of", "Class_")
    with pytest.raises(TrainyardError, match="'Class_' is both a key and an output of the model"):
        predict.predict(rows, model, ["Class_"])


def test_names_of_columns_may_have_dots(spark: Any, tmp_path: Path) -> None:
    rows = spark.range(6).selectExpr("cast(id as float) as `a.b`", "id as key", "id % 2 as `a.of`", "1.0f as y")
    uri = train_total(rows.select("`a.b`", "y"), tmp_path, features=["a.b"])
    rows.write.parquet(str(tmp_path / "source"))
    for _ in range(2):
        run_job(spark, uri, tmp_path, str(tmp_path / "source"), tmp_path / "out", partition_by="a.of")
    written = spark.read.parquet(str(tmp_path / "out"))
    assert written.columns == ["key", "prediction", "a.of"]
    assert sorted(map(tuple, written.collect())) == [(n, float(n), n % 2) for n in range(6)]


def test_rows_of_other_lengths_are_refused_if_their_numbers_would_fill_the_batch(spark: Any, tmp_path: Path) -> None:
    uri = train_total(spark.range(4).selectExpr("array(1f, 1f, 1f, 1f) as x", "4f as y"), tmp_path)
    rows = spark.createDataFrame([([1.0] * 3,), ([10.0] * 5,)], "x array<float>").coalesce(1)
    with pytest.raises(Exception, match="column 'x' has 3 elements in row 0 of a batch"):
        predict.predict(rows, uri).collect()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"prediction": "no dict"}, "returns a Tensor; return a dict of tensors"),
        ({"prediction": "list"}, "returns a list in 'prediction'; return a dict of tensors"),
        (
            {"prediction": "mean"},
            r"returns a tensor of shape \[\] in 'prediction' for 2 rows; return a dict of tensors",
        ),
        ({"model": "Elements"}, "returns a value for each element of a variable-length row in 'prediction'"),
        ({"model": "Both"}, "returns a dict in 'prediction'; return a dict of tensors"),
    ],
)
def test_what_is_no_prediction_of_each_row_is_refused(
    spark: Any, tmp_path: Path, params: dict[str, Any], message: str
) -> None:
    rows = spark.range(4).selectExpr("array(cast(id as float)) as x", "1f as y")
    uri = train_total(rows, tmp_path, variable_length="x", **params)
    with pytest.raises(TrainyardError, match=f"predict of the recipe 'tests.etl.recipes:total' {message}"):
        predict.predict(rows, uri)


def test_predictions_in_half_precision_are_floats(spark: Any, tmp_path: Path) -> None:
    rows = spark.range(4).selectExpr("cast(id as float) as x", "1f as y")
    predicted = predict.predict(rows, train_total(rows, tmp_path, prediction="half"))
    assert sorted((row.x, row.prediction) for row in predicted.collect()) == [(float(n), float(n)) for n in range(4)]


def test_unsigned_predictions_have_a_wider_type(spark: Any, tmp_path: Path) -> None:
    rows = spark.range(4).selectExpr("cast(id as float) as x", "1f as y")
    uri = train_total(rows, tmp_path, prediction="uint8")
    predicted = predict.predict(rows, uri)
    assert predicted.schema["prediction"].dataType.simpleString() == "smallint"
    locally = load_model(uri).predict({"x": np.arange(4)})["prediction"].tolist()
    assert sorted(row.prediction for row in predicted.collect()) == locally == [200, 201, 202, 203]


@pytest.mark.parametrize(("prediction", "kind"), [("complex", "complex numbers"), ("uint64", "numbers of type uint64")])
def test_predictions_of_a_type_that_spark_does_not_have_are_refused(
    spark: Any, tmp_path: Path, prediction: str, kind: str
) -> None:
    rows = spark.range(4).selectExpr("cast(id as float) as x", "1f as y")
    uri = train_total(rows, tmp_path, prediction=prediction)
    with pytest.raises(TrainyardError, match=f"returned column 'prediction' with {kind}"):
        predict.predict(rows, uri)


def test_a_prepare_that_returns_no_dataframe_is_refused(spark: Any, model: str, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match=r"prepare='tests.etl.prepares:nothing' returned NoneType; it must return"):
        predict_rows(spark, model, tmp_path, datasets.blobs(10), tmp_path / "out", prepare="tests.etl.prepares:nothing")


def test_predictions_replace_previous_ones(spark: Any, model: str, tmp_path: Path) -> None:
    for rows in (30, 20):
        predict_rows(spark, model, tmp_path, datasets.blobs(rows), tmp_path / "out")
    assert spark.read.parquet(str(tmp_path / "out")).count() == 20
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


@pytest.mark.parametrize("fault", ["another shape", "a null"])
def test_a_failure_leaves_previous_predictions_unchanged(spark: Any, model: str, tmp_path: Path, fault: str) -> None:
    predict_rows(spark, model, tmp_path, datasets.blobs(30), tmp_path / "out")
    wrong = datasets.blobs(10)
    if fault == "another shape":
        wrong["x"] = np.zeros((10, 5), np.float32)
        message = "column 'x' has 5 elements in row 0 of a batch; the model takes shape"
    else:
        wrong["x"] = np.array([[None] * 8] * 10, dtype=object)
        message = "column 'x' has nulls"
    with pytest.raises(Exception, match=message):
        predict_rows(spark, model, tmp_path, wrong, tmp_path / "out")
    assert spark.read.parquet(str(tmp_path / "out")).count() == 30
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


@pytest.mark.parametrize("options", [{}, {"partition_by": "of"}])
def test_predictions_never_replace_other_files(spark: Any, model: str, tmp_path: Path, options: dict[str, Any]) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/thesis.txt").write_text("years of work")
    with pytest.raises(
        TrainyardError, match=r"precious' contains 'thesis\.txt', .* Remove this directory, or write another output=\."
    ):
        predict_rows(spark, model, tmp_path, datasets.blobs(10), tmp_path / "precious", **options)
    assert (tmp_path / "precious/thesis.txt").exists()


@pytest.mark.parametrize("options", [{}, {"partition_by": "of"}, {"output_format": "trainyard"}])
def test_an_output_of_something_else_is_refused_before_anything_is_read(
    spark: Any, model: str, tmp_path: Path, options: dict[str, Any]
) -> None:
    exported = '{"application": "a", "written_at": "2026-01-01", "source": "csv", "code_hash": "c"}'
    spark.range(3).write.format("trainyard").mode("append").option("provenance", exported).save(str(tmp_path / "out"))
    with pytest.raises(TrainyardError, match="write another output="):
        run_job(spark, model, tmp_path, str(tmp_path / "no source"), tmp_path / "out", **options)


@pytest.mark.parametrize("partition_by", [None, "of"])
def test_an_output_that_cannot_appear_in_one_step_is_refused_before_anything_is_read(
    spark: Any, model: str, tmp_path: Path, partition_by: str | None
) -> None:
    with pytest.raises(TrainyardError, match=r"output='memory://predictions' .* Set output_format='trainyard'"):
        run_job(spark, model, tmp_path, str(tmp_path / "no source"), "memory://predictions", partition_by=partition_by)
