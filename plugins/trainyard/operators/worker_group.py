"""The base class of operators that run a worker group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import PositiveInt

from trainyard.jobs.common_options import COMMON_FIELDS, CommonOptions
from trainyard.jobs.operator import JobOperator
from trainyard.jobs.options import Templated

GROUP_FIELDS = ("cores_per_worker", *COMMON_FIELDS)
"""The template fields of every operator that runs a worker group."""


class WorkerGroupOptions(CommonOptions):
    """The options of operators that run a worker group, beside the fields of the spec."""

    cores_per_worker: PositiveInt


class WorkerGroupOperator(JobOperator):
    """Run a job on a group of workers, each a task of one Spark barrier stage.

    Args:
        cores_per_worker: The cores that each worker requests from YARN, and its threads: those of torch, of decoders,
            and OMP_NUM_THREADS. On a local master the workers share its slots equally.
    """

    OPTIONS = WorkerGroupOptions

    def __init__(self, *, cores_per_worker: Templated[int] = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cores_per_worker = cores_per_worker

    def request_fields(self, options: Any, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return the workers and their cores, as fields of the Job."""
        return {
            "workers": spec["workers"],
            "min_workers": spec.get("min_workers"),
            "cores_per_worker": options.cores_per_worker,
        }
