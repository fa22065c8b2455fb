"""The base class of operators that run a worker group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import NonNegativeInt, PositiveInt, TypeAdapter

from trainyard.hooks.mlflow import read_tracking_uri
from trainyard.jobs.operator import JobOperator
from trainyard.jobs.options import validation
from trainyard.jobs.options.base import Templated
from trainyard.jobs.options.common import CommonOptions
from trainyard.schemas.specs.fields import Name, Workers
from trainyard.schemas.specs.job import TrackerOptions


class WorkerGroupOptions(CommonOptions):
    """The options of operators that run a worker group, beside the fields of the spec."""

    cores_per_worker: PositiveInt
    """The cores that each worker requests from YARN, and its threads: those of torch, of decoders, and OMP_NUM_THREADS.
    On a local master the workers share its slots equally."""
    gpus_per_worker: NonNegativeInt
    """The GPUs that each worker requests. On a local master workers use those that torch finds."""
    mlflow_conn_id: Name
    """The connection of the MLflow tracking server: host, port, and `https` as its schema, as of HTTP. Its login is not
    sent to the nodes: set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD there."""


class WorkerGroupOperator(JobOperator):
    """Run a job on a group of workers, each a task of one Spark barrier stage."""

    OPTIONS = WorkerGroupOptions

    def __init__(
        self,
        *,
        cores_per_worker: Templated[int] = 1,
        gpus_per_worker: Templated[int] = 0,
        mlflow_conn_id: str = "mlflow_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)

    def resolve_fields(self, root: str) -> dict[str, Any]:
        """Return the spec's fields, with the server of the connection for MLflow without a URI."""
        fields = super().resolve_fields(root)
        trackers = fields["trackers"]
        if not isinstance(trackers, list | tuple):
            return fields  # what another task returns, before it has, or what the spec refuses
        return fields | {"trackers": [self._complete_tracker(each) for each in trackers]}

    def _complete_tracker(self, tracker: Any) -> Any:
        options = {"name": tracker} if isinstance(tracker, str) else tracker
        options = options.model_dump() if isinstance(options, TrackerOptions) else options
        if not isinstance(options, Mapping) or options.get("name") != "mlflow" or options.get("uri"):
            return tracker
        if validation.is_pending(self.mlflow_conn_id):
            return tracker  # of a plan that is shown before templates are rendered
        return {**options, "uri": read_tracking_uri(self.mlflow_conn_id)}

    def request_fields(self, options: Any, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return the workers, their cores and their GPUs, as fields of the Job."""
        workers = TypeAdapter(Workers).validate_python(spec["workers"])
        low, high = (workers, workers) if isinstance(workers, int) else workers
        sizes = {"cores_per_worker": options.cores_per_worker, "gpus": options.gpus_per_worker}
        return {"workers": high, "min_workers": low} | sizes
