"""Measure how evenly the order distributes a batch over groups of any size, and what it costs to compute.

    PYTHONPATH=plugins:. python -m bench.datasets.workers

With 64 rows for each worker, for every number of workers up to 512 and some up to 4,096: the efficiency of a step is
the mean number of rows of a worker divided by the maximum. The cost is the time to compute the windows of one worker,
for each of its rows.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from trainyard.trainer.data.order import Order, window_steps

ROWS_PER_WORKER, ROW_BYTES, GOAL = 64, 136, 0.95


def measure(world: int) -> tuple[float, float]:
    """Return the lowest efficiency of a step but the last, and the nanoseconds of computation for each row."""
    batch = ROWS_PER_WORKER * world
    order = Order((8192,) * max(10, 20 * batch // 8192), batch, 0, window_steps(batch, ROW_BYTES))
    ranks = sorted({0, 1, world // 3, world // 2, world - 1} & set(range(world)))
    sizes, rows, seconds = [], 0, 0.0
    for rank in ranks:
        started = time.perf_counter()
        own: list[int] = []
        for window in order.windows(0, rank, world):
            if window.gather:
                rows += len(window.gather(None))
            own += window.sizes
        seconds += time.perf_counter() - started
        sizes.append(own[:-1])
    by_step = np.array(sizes)
    efficiency = (batch / world) / by_step.max(0)
    assert by_step.min() > 0
    return float(efficiency.min()), 1e9 * seconds / rows


def main() -> None:
    """Print the lowest efficiency and some costs, and exit with 1 if the goal is missed."""
    worlds = [*range(1, 513), 1000, 1023, 1024, 2048, 4095, 4096]
    measured = {world: measure(world) for world in worlds}
    lowest = min(measured, key=lambda world: measured[world][0])
    print(f"lowest efficiency {measured[lowest][0]:.3f}, with {lowest} workers (goal {GOAL})")
    for world in (1, 48, 63, 64, 100, 512, 4096):
        efficiency, cost = measured[world]
        print(f"{world:>5} workers  efficiency {efficiency:.3f}, {cost:.0f} ns a row")
    sys.exit(measured[lowest][0] < GOAL)


if __name__ == "__main__":
    main()
