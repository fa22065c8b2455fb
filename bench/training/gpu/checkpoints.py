"""What a checkpoint costs the training, and how long it is written."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Any

from bench.training.gpu.loops import Case, Clock, run_ours
from trainyard.trainer.checkpointing.checkpoints import Checkpoints
from trainyard.trainer.data.reading.split_reader import SplitReader
from trainyard.trainer.world import World

STALL_GOAL = 0.01


class TimedCheckpoints(Checkpoints):
    """Measure how long checkpoints are waited for, and written."""

    def __init__(self, root: str) -> None:
        super().__init__(root, "bench", "bench", World(), 2)
        self.waits: list[float] = []
        self.writes: list[float] = []

    def wait(self) -> None:
        began = time.perf_counter()
        super().wait()
        self.waits.append(time.perf_counter() - began)

    def _write(self, *arguments: Any) -> None:
        began = time.perf_counter()
        super()._write(*arguments)
        self.writes.append(time.perf_counter() - began)


def measure_checkpoints(data: SplitReader, case: Case, folder: str, turn: int, windows: int) -> None:
    """Compare windows with a checkpoint in their middle with those between.

    The first checkpoint is left out: it allocates the pinned memory that the others use again.
    """
    clock = Clock(lambda step: step % turn == turn // 2)
    checkpoints = TimedCheckpoints(f"{folder}/checkpoints")
    phases = run_ours(data, case, windows * turn, clock, None, checkpoints, 2 * turn)
    # The middle of window n is step n * turn, and checkpoints are saved after steps 2 * turn, 4 * turn and so on.
    durations = {number: clock.times[number] - clock.times[number - 1] for number in range(3, windows)}
    without = statistics.median(value for number, value in durations.items() if number % 2)
    stall = statistics.median(value for number, value in durations.items() if number % 2 == 0) - without
    size = sum(file.stat().st_size for file in Path(folder, "checkpoints").glob("step-*/*")) / 2
    print(
        f"  a checkpoint of {size / 1e6:.0f} MB every {2 * turn} steps stalls training for {stall * 1e3:.0f} ms: "
        f"{stall / (2 * without):.2%} of the time (goal {STALL_GOAL:.0%}); one every 10 minutes: {stall / 600:.3%}; "
        f"{phases.totals['checkpoint'] * 1e3:.0f} ms in all of their phases, with the first one"
    )
    write = statistics.median(checkpoints.writes)
    print(
        f"  a write takes {write:.2f} s ({size / write / 1e6:.0f} MB/s; {measure_disk(folder, size) / 1e6:.0f} MB/s "
        f"without training and checksums); waits for the one before: "
        + ", ".join(f"{wait * 1e3:.0f} ms" for wait in checkpoints.waits)
    )


def measure_disk(folder: str, size: float) -> float:
    """Return the bytes per second at which the disk takes a file of some size."""
    content, file = os.urandom(1 << 24), Path(folder, "file")
    began = time.perf_counter()
    with file.open("wb") as stream:
        for _ in range(max(int(size) >> 24, 1)):
            stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    seconds, written = time.perf_counter() - began, file.stat().st_size
    file.unlink()
    return written / seconds
