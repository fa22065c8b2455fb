"""Wait until Spark has enough slots for a worker group, and count the cores of its workers.

Spark has no public API for the number of tasks that can run at once. This uses the private `SparkContext._jsc`, as of
Spark 4.2.0.
"""

from __future__ import annotations

import time
from typing import Any

from trainyard.errors import TrainyardError

MAX_WAIT_SECONDS = 150.0
"""How long a group waits for the minimum number of workers, from the start of Spark on."""
ELASTIC_WAIT_SECONDS = 30.0
"""How long a group that may be smaller waits for the maximum number of workers."""


def wait_for_slots(context: Any, min_workers: int, max_workers: int) -> int:
    """Return the number of workers that can run at once, from `min_workers` to `max_workers`.

    Spark would retry a barrier stage that is too large for ten minutes; this fails earlier, and with a reason.

    Args:
        context: The SparkContext.
        min_workers: The smallest acceptable number.
        max_workers: The number to wait for.

    Raises:
        TrainyardError: There are fewer than `min_workers` slots.
    """
    started = time.monotonic()
    max_wait = 0.0 if context.master.startswith("local") else MAX_WAIT_SECONDS
    while (slots := count_slots(context)) < max_workers:
        waited = time.monotonic() - started
        if slots >= min_workers and waited >= min(max_wait, ELASTIC_WAIT_SECONDS):
            return slots
        if waited > max_wait:
            workers = max_workers if min_workers == max_workers else (min_workers, max_workers)
            raise TrainyardError(
                f"workers={workers} needs as many slots at once, but {context.master} offers {slots}. Write "
                f"workers={max(slots, 1)}, or give the application more slots (a master of local[{min_workers}], or "
                "more executors)."
            )
        time.sleep(1)
    return max_workers


def count_slots(context: Any) -> int:
    """Return how many tasks the application can run at once."""
    scala = context._jsc.sc()
    return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))


def count_cores(context: Any, workers: int) -> int:
    """Return the cores of each worker: those of a Spark task; on a local master an equal part of all slots.

    Args:
        context: The SparkContext.
        workers: The number of workers.
    """
    cores = int(context.getConf().get("spark.task.cpus", "1"))
    return cores * count_slots(context) // workers if context.master.startswith("local") else cores
