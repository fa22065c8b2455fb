"""Write model artifacts after training."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import torch

from trainyard import __version__
from trainyard.files import uris
from trainyard.files.retries import replace_file
from trainyard.schemas.datasets import fitted_state
from trainyard.schemas.datasets.manifest import Column, DatasetManifest
from trainyard.schemas.heads import ONLY
from trainyard.schemas.model_artifact import MixedIn, ModelArtifact, Normalization
from trainyard.trainer.data.mixture import Portion
from trainyard.trainer.model.artifacts import card
from trainyard.trainer.model.artifacts.weights import WrittenWeights


def build(
    weights: WrittenWeights,
    *,
    recipe: str,
    recipe_params: Mapping[str, Any],
    inputs: tuple[Column, ...],
    labels: Mapping[str, Column],
    normalization: Mapping[str, Normalization],
    start_from: str | None,
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
    """Return a model artifact; `save` writes it.

    Args:
        weights: The tensors of the recipe's model, which were written.
        recipe: The import path of the recipe.
        recipe_params: Its parameters.
        inputs: The feature columns, in the order of the model's arguments.
        labels: The label column of each head; that of a recipe without heads has an empty name.
        normalization: The normalization of each feature column that has one.
        start_from: The model whose weights the training began with.
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
    return ModelArtifact(
        recipe=recipe,
        recipe_params=dict(recipe_params),
        inputs=inputs,
        label=labels.get(ONLY),
        heads={name: column for name, column in labels.items() if name != ONLY},
        normalization=dict(normalization),
        weights=weights.files,
        weights_sha256=weights.sha256,
        aliases=weights.aliases,
        start_from=start_from,
        dataset=dataset,
        dataset_hash=manifest.content_hash,
        dataset_version=manifest.number,
        fitted=manifest.fitted,
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


def save(model: str, artifact: ModelArtifact) -> None:
    """Write an artifact, with its card and a copy of what its dataset was fitted by, to a directory below `model`.

    `publish` makes it the current one.
    """
    if artifact.fitted:
        text = fitted_state.read_bytes(uris.join(artifact.dataset, artifact.fitted.path), artifact.fitted)
        replace_file(uris.join(model, artifact.folder, fitted_state.FILE), text)
    replace_file(uris.join(model, artifact.folder, "model.json"), artifact.to_json().encode())
    replace_file(uris.join(model, artifact.folder, "card.md"), card.render_markdown(artifact).encode())


def publish(model: str, artifact: ModelArtifact) -> None:
    """Make `artifact` the current one of `model`, atomically."""
    replace_file(uris.join(model, "model.json"), artifact.to_json().encode())
