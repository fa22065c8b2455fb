"""Register a trained model with MLflow."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from trainyard.files import storage
from trainyard.files.retries import retry

WEIGHTS = "trainyard.weights_sha256"
"""The tag of a version with the sha256 of its weights."""
TIMEOUT = "MLFLOW_HTTP_REQUEST_TIMEOUT"


def register_model(client: Any, run: str, name: str, directory: str, weights: str) -> str:
    """Copy a model to the artifacts of a run, register it, and return the URI of its version, `models:/NAME/NUMBER`.

    If another attempt of the task has registered the same weights, its version is returned.

    Args:
        client: An `MlflowClient`.
        run: The id of the run.
        name: The name of the registered model, which is created if it does not exist.
        directory: The URI of a directory with the model in MLflow's format.
        weights: The sha256 of its weights.

    Raises:
        MlflowException: The server refuses it, or does not answer.
        UnavailableError: The storage does not answer.
    """
    versions = [
        each
        for each in client.search_model_versions(f"run_id = '{run}'")
        if each.name == name and each.tags.get(WEIGHTS) == weights
    ]
    if not versions:
        path = f"model-{weights[:16]}"
        with tempfile.TemporaryDirectory(prefix="trainyard-mlflow-") as folder:
            retry(f"read {directory}", partial(storage.copy, directory, folder))
            client.log_artifacts(run, folder, path)
        if not any(each.name == name for each in client.search_registered_models(f"name = '{name}'")):
            client.create_registered_model(name)
        artifacts = client.get_run(run).info.artifact_uri
        source = f"{artifacts.rstrip('/')}/{path}"
        versions = [client.create_model_version(name, source, run, tags={WEIGHTS: weights})]
    return f"models:/{name}/{versions[0].version}"


@contextmanager
def wait_for_uploads(timeout: str) -> Iterator[None]:
    """Give requests of the body ten minutes, unless the environment has another timeout than `timeout`.

    A server that stores artifacts elsewhere answers when it has stored one, which may be large.
    """
    before = os.environ.get(TIMEOUT)
    if before == timeout:
        os.environ[TIMEOUT] = "600"
    try:
        yield
    finally:
        if before is not None:
            os.environ[TIMEOUT] = before
