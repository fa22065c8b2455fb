"""Model bundles: written after training, loaded to evaluate and to predict. Nothing is unpickled."""

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
    ranks: int,
    seconds: float,
    device: str,
    application: str,
) -> ModelArtifact:
    """Write a bundle to the directory of its weights in `model`; `publish` makes it the current one.

    `weights` are the whole state of the recipe's model, on the CPU.
    """
    data = safetensors.torch.save({name: tensor.detach().contiguous() for name, tensor in weights.items()})
    digest = hashlib.sha256(data).hexdigest()
    bundle = ModelArtifact(
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
        workers=ranks,
        seconds=seconds,
        device=device,
        application=application,
        written_at=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={"trainyard": __version__, "torch": torch.__version__, "python": platform.python_version()},
    )
    storage.replace(storage.join(model, bundle.weights), data)
    storage.replace(storage.join(model, digest[:16], "model.json"), bundle.to_json().encode())
    storage.replace(storage.join(model, digest[:16], "card.md"), card.markdown(bundle).encode())
    return bundle


def publish(model: str, artifact: ModelArtifact) -> None:
    """Make `bundle` the current one at `model`, in one step."""
    storage.replace(storage.join(model, "model.json"), artifact.to_json().encode())
