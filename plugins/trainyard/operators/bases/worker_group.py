"""The base class of operators that run a worker group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import NonNegativeInt, PositiveInt, TypeAdapter

from trainyard.jobs.operator import JobOperator
from trainyard.jobs.options.base import Templated
from trainyard.jobs.options.common import CommonOptions
from trainyard.schemas.specs.fields import Workers


class WorkerGroupOptions(CommonOptions):
    """The options of operators that run a worker group, beside the fields of the spec."""

    cores_per_worker: PositiveInt
    """The cores that each worker requests from YARN, and its threads: those of torch, of decoders, and OMP_NUM_THREADS.
    On a local master the workers share its slots equally."""
    gpus_per_worker: NonNegativeInt
    """The GPUs that each worker requests. On a local master workers use those that torch finds."""


class WorkerGroupOperator(JobOperator):
    """Run a job on a group of workers, each a task of one Spark barrier stage."""

    OPTIONS = WorkerGroupOptions

    def __init__(
        self, *, cores_per_worker: Templated[int] = 1, gpus_per_worker: Templated[int] = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)

    def request_fields(self, options: Any, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return the workers, their cores and their GPUs, as fields of the Job."""
        workers = TypeAdapter(Workers).validate_python(spec["workers"])
        low, high = (workers, workers) if isinstance(workers, int) else workers
        sizes = {"cores_per_worker": options.cores_per_worker, "gpus": options.gpus_per_worker}
        return {"workers": high, "min_workers": low} | sizes
