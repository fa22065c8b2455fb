"""Where metrics go, beside the report."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, model_validator

from trainyard.schemas.document import Part
from trainyard.schemas.specs.fields import MLflowServer, refuse_string


class TrackerOptions(Part):
    """A place that metrics go to."""

    name: Literal["tensorboard", "mlflow"]
    """`tensorboard` writes event files to `tensorboard/TASK` in the run's directory; `mlflow` records a run in the
    experiment with the DAG's name."""
    uri: MLflowServer | None = None
    """The tracking server of `mlflow`, for example `http://mlflow:5000`. By default that of the operator's
    `mlflow_conn_id`."""

    @model_validator(mode="after")
    def _check_uri(self) -> Self:
        if self.uri and self.name != "mlflow":
            raise ValueError(f"uri is the server of 'mlflow', and {self.name!r} has none; remove it")
        return self


def _named(value: Any) -> Any:
    """Replace the name of a tracker by its default options."""
    return {"name": value} if isinstance(value, str) else value


Tracker = Annotated[TrackerOptions, BeforeValidator(_named)]
"""The name of a tracker, or a dict of its options."""
Trackers = Annotated[tuple[Tracker, ...], refuse_string("tensorboard", "mlflow")]
"""A list of trackers."""
