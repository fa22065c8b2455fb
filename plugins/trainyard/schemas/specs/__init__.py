"""Job specs: what each job is asked to do, as one document that Airflow and the job both validate. One job a file."""

from __future__ import annotations

import json

from trainyard.errors import TrainyardError
from trainyard.files import storage
from trainyard.schemas.specs.categories import Category
from trainyard.schemas.specs.evaluate import EvaluateSpec
from trainyard.schemas.specs.export import ExportSpec, FeaturizeSpec
from trainyard.schemas.specs.job import JobSpec
from trainyard.schemas.specs.predict import PredictSpec
from trainyard.schemas.specs.script import ScriptSpec
from trainyard.schemas.specs.source import Drift, Expectation, Source
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import Mixed, TrainOptions, TrainSpec

__all__ = [
    "SPECS",
    "Category",
    "Drift",
    "EvaluateSpec",
    "Expectation",
    "ExportSpec",
    "FeaturizeSpec",
    "JobSpec",
    "Mixed",
    "PredictSpec",
    "ScriptSpec",
    "Source",
    "TaskKey",
    "TrainOptions",
    "TrainSpec",
    "load_spec",
]

SPECS: dict[str, type[JobSpec]] = {
    spec.KIND: spec for spec in (ExportSpec, FeaturizeSpec, TrainSpec, ScriptSpec, EvaluateSpec, PredictSpec)
}
"""The spec of each kind of job, by the `document` field of its JSON."""


def load_spec(uri: str) -> JobSpec:
    """Read a spec of any kind. Raises FileNotFoundError, and TrainyardError if this release runs no such job."""
    text = storage.read(uri, JobSpec.MAX_BYTES)
    try:
        kind = SPECS[json.loads(text)["document"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise TrainyardError(f"{uri} is not the spec of a job that this release of Trainyard runs.") from None
    return kind.from_json(text, origin=uri).place(uri)
