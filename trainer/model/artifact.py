"""Write model artifacts after training. Weights are stored as safetensors: loading a model unpickles nothing."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from trainyard import __version__, storage
from trainyard.schemas.manifest import Column, DatasetManifest
from trainyard.schemas.model_artifact import MixedIn, ModelArtifact, Normalization
from trainyard.trainer.data.mixture import Portion
from trainyard.trainer.model import card


def save(
    model: str,
    weights: Mapping[str, Tensor],
    *,
    recipe: str,
    recipe_params: Mapping[str, Any],
    inputs: tuple[Column, ...],
    label: Column | None,
    normalization: Mapping[str, Normalization],
    dataset: str,
    manifest: DatasetManifest,
    mix: Sequence[Portion],
    metrics: Mapping[str, float],
    epochs: int,
    workers: int,
    seconds: float,
    device: str,
    application: str,
) -> ModelArtifact:
    """Write a model artifact, with its card, to a directory below `model`; `publish` makes it the current one.

    Args:
        model: The URI of the model.
        weights: The full state dict of the recipe's model, on the CPU.
        recipe: The import path of the recipe.
        recipe_params: Its parameters.
        inputs: The feature columns, in the order of the model's arguments.
        label: The label column.
        normalization: The normalization of each feature column that has one.
        dataset: The dataset trained on.
        manifest: Its version.
        mix: The datasets mixed into it.
        metrics: The metrics of the best epoch.
        epochs: The number of epochs.
        workers: The number of workers.
        seconds: The duration of the training.
        device: "cpu" or "cuda".
        application: The id of the Spark application.
    """
    data = safetensors.torch.save({name: tensor.detach().contiguous() for name, tensor in weights.items()})
    digest = hashlib.sha256(data).hexdigest()
    artifact = ModelArtifact(
        recipe=recipe,
        recipe_params=dict(recipe_params),
        inputs=inputs,
        label=label,
        normalization=dict(normalization),
        weights=f"{digest[:16]}/weights.safetensors",
        weights_sha256=digest,
        dataset=dataset,
        dataset_hash=manifest.content_hash,
        dataset_version=manifest.number,
        mix=tuple(
            MixedIn(
                dataset=portion.uri,
                dataset_hash=portion.manifest.content_hash,
                dataset_version=portion.manifest.number,
                share=portion.share,
            )
            for portion in mix
        ),
        metrics=dict(metrics),
        epochs=epochs,
        workers=workers,
        seconds=seconds,
        device=device,
        application=application,
        written_at=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={"trainyard": __version__, "torch": torch.__version__, "python": platform.python_version()},
    )
    storage.replace(storage.join(model, artifact.weights), data)
    storage.replace(storage.join(model, digest[:16], "model.json"), artifact.to_json().encode())
    storage.replace(storage.join(model, digest[:16], "card.md"), card.render_markdown(artifact).encode())
    return artifact


def publish(model: str, artifact: ModelArtifact) -> None:
    """Make `artifact` the current one of `model`, atomically."""
    storage.replace(storage.join(model, "model.json"), artifact.to_json().encode())
