"""The schedules, rules and functions of the examples, without a run of their DAGs."""

from __future__ import annotations

import io
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.plugins.evaluations import beside, evaluation, scores
from tests.trainer import datasets
from trainyard.schemas.evaluation import Scores

ROOT = Path(__file__).parents[2]
spark_session = pytest.mark.spark


def read_dag(folder: str, dag_id: str) -> Any:
    """Return a DAG of an example, as the scheduler parses it."""
    from trainyard.compat import import_dag_bag

    bag = import_dag_bag()(dag_folder=str(ROOT / "dags" / folder))
    assert not bag.import_errors
    return bag.dags[dag_id]


@pytest.mark.slow
def test_the_run_after_a_day_exports_that_day() -> None:
    from airflow.sdk.timezone import datetime
    from airflow.serialization.serialized_objects import DagSerialization

    dag = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(read_dag("daily", "daily")))
    day, midnight = datetime(2026, 11, 26), datetime(2026, 11, 27)
    [run] = dag.iter_dagrun_infos_between(day, day)
    assert (run.logical_date, run.run_after) == (day, midnight)
    assert tuple(run.data_interval) == (day, midnight)


@spark_session
def test_a_digit_that_returns_on_another_day_stays_in_its_split(spark: Any, tmp_path: Path) -> None:
    from daily.prepare import digits
    from daily.source import write

    from trainyard.etl.jobs.exporting import splits

    export = read_dag("daily", "daily").task_dict["export"]

    def assign(day: str) -> dict[int, str]:
        file = write(str(tmp_path), day)
        frame = digits(spark, spark.read.option("basePath", str(tmp_path)).parquet(file))
        rows = splits.assign(frame, export.splits, export.split_by, export.stratify, export.seed or 0)
        return {row.number: row[splits.SPLIT] for row in rows.collect()}

    first = assign("2026-01-01")
    assert set(first.values()) == {"train", "validation", "test"}
    assert assign("2026-01-06") == first


def test_a_model_that_is_worse_than_the_champion_of_penguins_is_not_promoted() -> None:
    from trainyard.models.promotion import decide
    from trainyard.schemas.promotion import Rule

    promote = read_dag("penguins", "penguins_sweep").task_dict["promote"]
    rule = Rule(**{name: getattr(promote, name) for name in Rule.model_fields})
    worse = evaluation(Scores(**scores("candidate", "f", mae=0.32)), beside("champion", "c", mae=(0.005, 0.02, 0.035)))
    better = evaluation(
        Scores(**scores("candidate", "f", mae=0.28)), beside("champion", "c", mae=(-0.03, -0.02, -0.01))
    )
    assert [decide(each, "champion", "c", rule).promoted for each in (worse, better)] == [False, True]


def test_one_sweep_runs_at_a_time() -> None:
    assert read_dag("penguins", "penguins_sweep").max_active_runs == 1


@spark_session
def test_penguins_without_a_body_mass_are_predicted_but_not_trained_on(spark: Any) -> None:
    from penguins.prepare import inputs, table

    rows = [
        ("Adelie", "Biscoe", 39.1, 18.7, 181, 3750, "male", 2007),
        ("Adelie", "Dream", 37.5, 18.9, 179, None, None, 2007),
        ("Gentoo", "Biscoe", None, None, None, None, None, 2009),
    ]
    columns = "species string, island string, bill_length_mm double, bill_depth_mm double, flipper_length_mm int"
    source = spark.createDataFrame(rows, f"{columns}, body_mass_g int, sex string, year int")
    assert [row.body_mass_kg for row in table(spark, source).collect()] == [3.75]
    predicted = inputs(spark, source).collect()
    assert [row.penguin.split("-")[:2] for row in predicted] == [["Adelie", "Biscoe"], ["Adelie", "Dream"]]
    assert all(None not in row.features for row in predicted)


@spark_session
def test_sentences_of_other_chapters_are_left_out(spark: Any) -> None:
    from sequences.prepare import words

    text = spark.createDataFrame(
        [("a-0", "a", "One."), ("b-0", "b", "Two.")], "sentence string, chapter string, text string"
    )
    assert [(row.sentence, row.label) for row in words(spark, text, ["b"], 8).collect()] == [("b-0", 0)]


@spark_session
def test_an_image_has_its_folder_as_label_and_is_made_smaller(spark: Any, tmp_path: Path) -> None:
    from images.prepare import files
    from images.source import write

    source = spark.read.format("binaryFile").option("recursiveFileLookup", True).load(write(str(tmp_path)))
    rows = files(spark, source).collect()
    assert len(rows) == 520 and {(row.tile.split("/")[0], row.photograph) for row in rows} == {
        ("china", "china"), ("flower", "flower"),
    }  # fmt: skip
    sides = Counter(max(Image.open(io.BytesIO(row.image)).size) for row in rows)
    assert sides.keys() == {32, 64} and sides[64] > sides[32]


def test_each_selection_of_chapters_has_its_own_file(tmp_path: Path) -> None:
    from sequences.source import write

    both, one = (write(str(tmp_path), chapters) for chapters in (["debugger", "types"], ["types"]))
    assert both != one
    assert '"debugger"' in Path(both).read_text() and '"debugger"' not in Path(one).read_text()
    assert write(str(tmp_path), ["types"]) == one


@pytest.mark.slow
def test_a_worker_of_the_loop_trains_on_a_batch_with_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gan import loop

    images = np.random.default_rng(0).random((loop.BATCH + 1, 1, 8, 8), np.float32)
    dataset = datasets.write(tmp_path / "dataset", {"train": {"image": images}})
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["loop", dataset, str(tmp_path / "generator.pt"), "--epochs", "1"])
    loop.main()
    assert (tmp_path / "generator.pt").exists()
