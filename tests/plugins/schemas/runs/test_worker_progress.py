"""The progress of a training in words."""

from __future__ import annotations

import pytest

from trainyard.schemas.runs.worker_progress import TrainingProgress, format_seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h 0 min"),
        (90_061, "25 h 1 min"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_progress_is_one_line_of_a_log() -> None:
    progress = TrainingProgress(
        epoch=3, epochs=10, step=120, steps=400, loss=0.31234, rows_per_second=12_340.4, seconds_left=95
    )
    assert progress.describe() == "epoch 3/10 step 120/400: loss 0.3123, 12,340 rows/s, 1 min 35 s left"
