"""Wait until Spark has enough slots for a worker group, and count the cores of its workers.

Spark has no public API for the number of tasks that can run at once. This uses the private `SparkContext._jsc`, as of
Spark 4.2.0.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from trainyard.errors import TrainyardError

MAX_WAIT_SECONDS = 150.0
"""How long a group waits for the minimum number of workers, from the start of Spark on."""
ELASTIC_WAIT_SECONDS = 30.0
"""How long a group that may be smaller waits for each further slot."""
UNPACK_SECONDS = 450.0
"""How much longer a group waits where nodes first fetch and unpack an archive, such as a packed environment of 6 GB."""
ELASTIC_UNPACK_SECONDS = 90.0
"""How much later than another node one may have unpacked it."""
_ARCHIVES = ("spark.archives", "spark.yarn.dist.archives")


def compute_waits(master: str, conf: Mapping[str, str], restarted: bool) -> tuple[float, float]:
    """Return how many seconds a group waits for the minimum number of workers, and then for each further one.

    A group that lost a worker does not wait longer for a further one because of an archive: most nodes have it.

    Args:
        master: The master of Spark.
        conf: The configuration of Spark.
        restarted: Whether the group has run before.
    """
    if master.startswith("local"):
        return 0.0, 0.0
    if not any(conf.get(name) for name in _ARCHIVES):
        return MAX_WAIT_SECONDS, ELASTIC_WAIT_SECONDS
    return MAX_WAIT_SECONDS + UNPACK_SECONDS, ELASTIC_WAIT_SECONDS + (0.0 if restarted else ELASTIC_UNPACK_SECONDS)


def wait_for_slots(context: Any, min_workers: int, max_workers: int, restarted: bool = False) -> int:
    """Return the number of workers that can run at once, from `min_workers` to `max_workers`.

    Spark would retry a barrier stage that is too large for ten minutes; this fails earlier, and with a reason.

    Args:
        context: The SparkContext.
        min_workers: The smallest acceptable number.
        max_workers: The number to wait for.
        restarted: Whether the group has run before.

    Raises:
        TrainyardError: There are fewer than `min_workers` slots.
    """
    started = grown = time.monotonic()
    max_wait, elastic_wait = compute_waits(context.master, dict(context.getConf().getAll()), restarted)
    last = 0
    while (slots := count_slots(context)) < max_workers:
        if slots > last:
            last, grown = slots, time.monotonic()
        if slots >= min_workers and time.monotonic() - grown >= elastic_wait:
            return slots
        waited = time.monotonic() - started
        if slots < min_workers and waited > max_wait:
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
