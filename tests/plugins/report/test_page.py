"""What the report says of a run, from its records alone."""

from __future__ import annotations

from trainyard.report import render
from trainyard.schemas.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey


def test_of_a_script_it_is_said_on_how_many_ranks_it_ran() -> None:
    ran = RunRecord(
        task_key=TaskKey(dag_id="toy", run_id="r", task_id="script", directory="/s/runs/toy/r"), job="script",
        application="a", started_at=10.0, seconds=12.3, status="succeeded", output={"workers": 2, "restarts": 0},
    )  # fmt: skip
    assert "2 workers" in render.page([ran], [])
