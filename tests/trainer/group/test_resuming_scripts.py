"""Scripts that store their checkpoints resume from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.trainer.group.test_unchanged_scripts import run
from trainyard.report.curves import read_epochs
from trainyard.schemas.runs import events as event_log

EPOCHS = 6


def read_losses(file: Path) -> list[tuple[str, float]]:
    lines = [line.split() for line in file.read_text().splitlines()]
    return [(epoch, float(loss)) for epoch, loss in lines]


@pytest.mark.spark
def test_a_script_that_lost_a_worker_resumes_from_what_it_has_stored(spark: Any, tmp_path: Path) -> None:
    losses = {}
    for name, fault in (("undisturbed", "none"), ("killed", "4")):
        (folder := tmp_path / name).mkdir()
        result = run(spark, folder, "resumable", str(folder / "losses"), str(EPOCHS), fault, max_restarts=1)
        losses[name] = read_losses(folder / "losses")
        assert result["restarts"] == int(fault != "none")
        assert result["metrics"]["loss"] == pytest.approx(losses[name][-1][1])
        points = read_epochs(event_log.read(str(folder / "run")))
        assert [(point["epoch"], point["loss"]) for point in points] == [
            (int(epoch), pytest.approx(loss)) for epoch, loss in dict(losses[name]).items()
        ]
    assert [epoch for epoch, _ in losses["undisturbed"]] == [str(epoch) for epoch in range(1, EPOCHS + 1)]
    assert dict(losses["killed"]) == dict(losses["undisturbed"])
    resumed_at = [epoch for epoch, _ in losses["killed"]][3]
    assert resumed_at in ("3", "4"), "of the third epoch, the checkpoint may not have been stored yet"
