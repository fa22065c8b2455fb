"""Scripts that store their checkpoints resume from them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.trainer.group.test_unchanged_scripts import run
from trainyard.errors import TrainyardError
from trainyard.report.curves import read_points
from trainyard.schemas.runs import events as event_log
from trainyard.trainer.group import script

EPOCHS = 6


def read_losses(file: Path) -> list[tuple[str, float]]:
    lines = [line.split() for line in file.read_text().splitlines()]
    return [(epoch, float(loss)) for epoch, loss in lines]


def read_result(folder: Path, rank: int) -> Any:
    return json.loads((folder / f"{rank}.json").read_text())


def read_board(run: Path) -> list[tuple[int, float]]:
    """Return the losses by epoch in the event files of a run; each start of the group has one."""
    losses = {}
    for file in sorted(run.glob("tensorboard/*/events.*"), key=lambda file: file.name):
        accumulator = EventAccumulator(str(file))
        accumulator.Reload()
        losses |= {event.step: event.value for event in accumulator.Scalars("loss")}
    return sorted(losses.items())


@pytest.mark.spark
def test_a_script_that_lost_a_worker_resumes_from_what_it_has_stored(spark: Any, tmp_path: Path) -> None:
    losses = {}
    for name, fault in (("undisturbed", "none"), ("killed", "4")):
        (folder := tmp_path / name).mkdir()
        result = run(
            spark,
            folder,
            "resumable",
            str(folder / "losses"),
            str(EPOCHS),
            fault,
            max_restarts=1,
            trackers=["tensorboard"],
        )
        losses[name] = read_losses(folder / "losses")
        assert result["restarts"] == int(fault != "none")
        assert result["metrics"]["loss"] == pytest.approx(losses[name][-1][1])
        points = read_points(event_log.read(str(folder / "run")))
        expected = [(int(epoch), pytest.approx(loss)) for epoch, loss in dict(losses[name]).items()]
        assert [(point["epoch"], point["loss"]) for point in points] == expected
        assert read_board(folder / "run") == expected
    assert [epoch for epoch, _ in losses["undisturbed"]] == [str(epoch) for epoch in range(1, EPOCHS + 1)]
    assert dict(losses["killed"]) == dict(losses["undisturbed"])
    resumed_at = [epoch for epoch, _ in losses["killed"]][3]
    assert resumed_at in ("3", "4"), "of the third epoch, the checkpoint may not have been stored yet"


APPLICATION = """
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.trainer.group.test_unchanged_scripts import run

builder = SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1")
run(builder.getOrCreate(), Path(sys.argv[1]), "resumable", sys.argv[1] + "/losses", "6", "hang4")
"""


@pytest.mark.full
@pytest.mark.spark
def test_the_next_attempt_resumes_when_the_driver_was_killed(spark: Any, tmp_path: Path) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", APPLICATION, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": "plugins:.", "PYSPARK_PYTHON": sys.executable},
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "done").exists():
        assert driver.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    driver.kill()
    driver.wait()
    result = run(spark, tmp_path, "resumable", str(tmp_path / "losses"), str(EPOCHS), "hang4")
    assert result["restarts"] == 0
    epochs = [int(epoch) for epoch, _ in read_losses(tmp_path / "losses")]
    assert epochs in ([1, 2, 3, 4, 5, 6], [1, 2, 3, 3, 4, 5, 6])


@pytest.mark.full
@pytest.mark.spark
def test_lightning_resumes_from_its_last_checkpoint(spark: Any, tmp_path: Path) -> None:
    weights = {}
    for fault in ("none", "3"):
        (folder := tmp_path / fault).mkdir()
        run(spark, folder, "lightning_digits", str(folder), "4", fault, max_restarts=1)
        weights[fault] = {read_result(folder, rank) for rank in (0, 1)}
        epochs = (folder / "epochs 0").read_text().split()
        assert list(dict.fromkeys(epochs)) == ["1", "2", "3", "4"] and len(epochs) <= 5
    assert weights["none"] == weights["3"] and len(weights["3"]) == 1


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("name", ["transformers_rows", "accelerate_steps"])
def test_hugging_face_resumes_exactly_from_what_all_ranks_have_stored(spark: Any, tmp_path: Path, name: str) -> None:
    """The dropout of each rank continues with its random state, which the rank has saved itself."""
    weights = {}
    for fault in ("none", "kill"):
        (folder := tmp_path / fault).mkdir()
        run(spark, folder, name, str(folder), fault, max_restarts=1, checkpoints_of="all ranks")
        first, second = (read_result(folder, rank) for rank in (0, 1))
        assert first["weights"] == second["weights"]
        assert first["resumed"] == second["resumed"] == (fault == "kill")
        weights[fault] = first["weights"]
    assert weights["none"] == weights["kill"]


@pytest.mark.full
@pytest.mark.spark
def test_ranks_that_each_store_a_part_resume_in_the_next_attempt_with_another_number_of_workers(
    spark: Any, tmp_path: Path
) -> None:
    fields = {"checkpoints_of": "all ranks", "max_restarts": 1}
    run(spark, tmp_path, "sharded", str(tmp_path), "kill", **fields)
    assert read_result(tmp_path, 0) == read_result(tmp_path, 1) == {"total": [10.0] * 8, "size": 2}
    (other := tmp_path / "other").mkdir()
    with pytest.raises(TrainyardError, match="out of luck"):
        run(spark, other, "sharded", str(other), "raise", **fields)
    run(spark, other, "sharded", str(other), "none", **fields | {"workers": 1})
    assert read_result(other, 0) == {"total": [10.0] * 8, "size": 1}


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize(
    ("how", "fields", "message"),
    [
        (
            "wait",
            {"hang_minutes": 0.1},
            "the worker group hangs: no script has called .* for \\d+ s; rank 1 on .*, in 'script' for",
        ),
        ("stop", {}, "the process of tests.trainer.scripts.silent was stopped, as by SIGSTOP"),
    ],
)
def test_a_script_that_reports_no_more_is_named_and_the_group_restarts(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], how: str,
    fields: dict[str, Any], message: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(script, "parse_silence_seconds", lambda _: 3.0)
    result = run(spark, tmp_path, "silent", str(tmp_path), how, max_restarts=1, workers=(1, 2), **fields)
    assert result == {"workers": 2, "restarts": 1}
    assert re.search(message, capfd.readouterr().out)
    assert (tmp_path / "1 1").exists()
