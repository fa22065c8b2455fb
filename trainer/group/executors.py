"""Remove the executors of workers that are lost to the driver, so that the next group is formed without them.

Spark waits for an executor's own heartbeats for two minutes, and YARN for a node's for ten. This uses the private
`SparkContext._jsc` and `SparkContext.killAndReplaceExecutor` of Spark 4.2.0.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

_MAX_TASKS = 1 << 20


def remove_executors(context: Any, tag: str, ranks: Collection[int]) -> list[str]:
    """Remove the executors that run some workers, and have the cluster replace them; return their ids.

    A local master has none to remove.

    Args:
        context: The SparkContext.
        tag: The tag of the group's job.
        ranks: The numbers of the workers, which are the partitions of its only stage.
    """
    scala = context._jsc.sc()
    tracker = scala.statusTracker()
    stages = [stage for job in tracker.getJobIdsForTag(tag) for stage in tracker.getJobInfo(job).get().stageIds()]
    removed: list[str] = []
    for stage in stages:
        tasks = scala.statusStore().taskList(stage, 0, _MAX_TASKS)
        of_ranks = (tasks.apply(number) for number in range(tasks.size()))
        executors = sorted({str(task.executorId()) for task in of_ranks if task.partitionId() in ranks})
        removed += [executor for executor in executors if scala.killAndReplaceExecutor(executor)]
    return removed
