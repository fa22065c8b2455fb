"""Register a trained model with MLflow."""

from __future__ import annotations

import tempfile
from functools import partial
from typing import Any

from trainyard.files import storage
from trainyard.files.retries import retry

ARTIFACT = "model"
"""The path of the model among the artifacts of its run."""


def register_model(client: Any, run: str, name: str, directory: str) -> str:
    """Copy a model to the artifacts of a run, register it, and return the URI of its version, `models:/NAME/NUMBER`.

    A run has one version: what another attempt of the task has registered is returned.

    Args:
        client: An `MlflowClient`.
        run: The id of the run.
        name: The name of the registered model, which is created if it does not exist.
        directory: The URI of a directory with the model in MLflow's format.

    Raises:
        MlflowException: The server refuses it, or does not answer.
        UnavailableError: The storage does not answer.
    """
    versions = [each for each in client.search_model_versions(f"run_id = '{run}'") if each.name == name]
    if not versions:
        with tempfile.TemporaryDirectory(prefix="trainyard-mlflow-") as folder:
            retry(f"read {directory}", partial(storage.copy, directory, folder))
            client.log_artifacts(run, folder, ARTIFACT)
        if not any(each.name == name for each in client.search_registered_models(f"name = '{name}'")):
            client.create_registered_model(name)
        artifacts = client.get_run(run).info.artifact_uri
        versions = [client.create_model_version(name, f"{artifacts.rstrip('/')}/{ARTIFACT}", run)]
    return f"models:/{name}/{versions[0].version}"
