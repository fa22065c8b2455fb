"""The stages of a run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plugins.report import example
from tests.plugins.results import output
from trainyard.report import stages
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey


def record(task: str, start: float, seconds: float) -> RunRecord:
    task_key = TaskKey(dag_id="toy", run_id="r1", task_id=task, directory="file:///runs/toy/r1")
    return RunRecord(
        task_key=task_key, job="export", application="a1", started_at=start, seconds=seconds, status="succeeded",
        output=output("export"),
    )  # fmt: skip


def test_a_stage_waits_from_the_end_of_all_before_it() -> None:
    built = stages.build_stages([record("a", 100, 50), record("b", 120, 10), record("c", 155, 5), record("d", 170, 1)])
    assert [stage.waited for stage in built] == [None, 0.0, pytest.approx(5), pytest.approx(10)]
    assert [stage.share for stage in built] == [1.0, 0.2, 0.1, 0.02]


def test_the_main_figures_of_each_kind_of_stage() -> None:
    built = stages.build_stages(example.build_records("file:///runs/digits/r1"))
    assert [stage.headline for stage in built] == [
        "1,797 rows in 10 record batches of 6 shards",
        "8 epochs on 2 workers, best in epoch 5: loss 0.08208, validation loss 0.08208, accuracy 0.9857",
        "accuracy 0.9947, f1 0.9955",
        "1,797 rows",
    ]


@pytest.mark.parametrize(
    ("metrics", "headline"), [({}, "2 workers"), ({"metrics": {"val_loss": 0.25}}, "2 workers: val loss 0.25")]
)
def test_a_script_has_the_metrics_that_it_reported(metrics: dict[str, Any], headline: str) -> None:
    script = RunRecord(
        task_key=record("a", 0, 1).task_key, job="script", application="a1", started_at=0, seconds=1,
        status="succeeded", output=output("script", **metrics),
    )  # fmt: skip
    assert stages.build_stages([script])[0].headline == headline


def test_a_stage_without_seconds_has_no_duration_and_a_reused_one_says_so() -> None:
    [failed] = stages.build_stages([record("a", 0, 0)])
    assert failed.duration == ""
    reused = example.change_record(record("a", 0, 3), {"reused": True})
    assert stages.build_stages([reused])[0].duration == "reused"
