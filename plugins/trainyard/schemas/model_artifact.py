"""The model artifact: a directory that holds all it takes to use a trained model.

MODEL/CONTENT_HASH/weights.safetensors   the tensors
MODEL/CONTENT_HASH/model.json           everything else, in this document
MODEL/CONTENT_HASH/card.md               the same for people
MODEL/model.json                        the current one, replaced atomically
MODEL/epochs/003                         what it was after epoch 3, a model of its own, if that was asked for
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.schemas.document import Document, Part
from trainyard.schemas.manifest import Column
from trainyard.schemas.specs.fields import ImportPath


class Normalization(Part):
    """(x - mean) / std; one entry an element of the column's tensor, or one for all."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    per: Literal["element", "channel", "all"]


class MixedIn(Part):
    """A dataset of which `share` of the rows of each epoch were."""

    dataset: str
    dataset_hash: str
    dataset_version: int
    share: float


class ModelArtifact(Document):
    """What a model is made of and what it was trained on. `weights` is relative to the model.

    `ranks` trained it for `seconds` on `device`, "cpu" or "cuda".
    """

    KIND: ClassVar[str] = "model artifact"

    recipe: ImportPath
    recipe_params: dict[str, Any]
    inputs: tuple[Column, ...]
    label: Column | None
    normalization: dict[str, Normalization]
    weights: str
    weights_sha256: str
    dataset: str
    dataset_hash: str
    dataset_version: int
    mix: tuple[MixedIn, ...] = ()
    metrics: dict[str, float]
    epochs: int
    ranks: int
    seconds: float
    device: str
    application: str
    written_at: str
    versions: dict[str, str]


def exists(model: str) -> bool:
    """Whether there is a bundle at `model`."""
    return storage.exists(storage.join(model, "model.json"))


def epoch_model_uri(model: str, number: int) -> str:
    """The model after an epoch, counted from 1."""
    return storage.join(model, "epochs", f"{number:03d}")


def read_current(model: str) -> ModelArtifact:
    """The bundle in force at `model`."""
    try:
        return ModelArtifact.load(storage.join(model, "model.json"))
    except FileNotFoundError:
        raise TrainyardError(
            f"{model} is not a model artifact: it has no model.json. Write it with TrainOperator, or with trainyard.trainer.fit."
        ) from None
