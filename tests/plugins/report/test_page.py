"""What the report says of a run, from its records alone."""

from __future__ import annotations

from trainyard import report
from trainyard.contract.record import RunRecord
from trainyard.contract.spec import Place


def test_of_a_script_it_is_said_on_how_many_ranks_it_ran() -> None:
    ran = RunRecord(
        place=Place(dag_id="toy", run_id="r", task_id="script", directory="/s/runs/toy/r"), job="script",
        application="a", started_at=10.0, seconds=12.3, status="succeeded", output={"workers": 2, "restarts": 0},
    )  # fmt: skip
    assert "2 ranks" in report.page([ran], [])
