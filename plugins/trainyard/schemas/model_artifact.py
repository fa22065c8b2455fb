"""The model artifact: a directory with everything that it takes to use a trained model.

MODEL/CONTENT_HASH/weights.safetensors   the tensors; of a large model weights-00001-of-00003.safetensors and so on
MODEL/CONTENT_HASH/model.json            everything else, in this document
MODEL/CONTENT_HASH/card.md               the model card, for people
MODEL/CONTENT_HASH/fitted_state.json     what the dataset was fitted by, if it was
MODEL/model.json                         the current artifact, replaced atomically
MODEL/CONTENT_HASH/members/0/            copies of the models of an ensemble, each as in MODEL/
MODEL/epochs/003                         the model after epoch 3, a model of its own, if epoch models are kept
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, Self

from pydantic import NonNegativeInt

from trainyard.errors import TrainyardError
from trainyard.files import storage, uris
from trainyard.schemas.datasets import fitted_state
from trainyard.schemas.datasets.fitted_state import FittedReference, FittedState
from trainyard.schemas.datasets.manifest import Column
from trainyard.schemas.document import Document, Part
from trainyard.schemas.heads import ONLY
from trainyard.schemas.references import Reference, find_results, refer_to_model
from trainyard.schemas.specs.fields import ImportPath
from trainyard.schemas.types import ApplicationId, Digest, RelativePath
from trainyard.schemas.version_suffix import add_version, split_version

WEIGHTS_FILE = ".safetensors"
"""How the name of a file of weights ends, which a training may start from in place of a model; it has no versions."""
Combination = Literal["mean", "vote"]
_FOLDER = re.compile(r"[0-9a-f]{16}")


class Normalization(Part):
    """The scaling (x - mean) / std of a column: one value for each element, for each channel, or one for all."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    per: Literal["element", "channel", "all"]


class MixedIn(Part):
    """A dataset whose rows were the fraction `share` of each epoch."""

    dataset: str
    dataset_hash: Digest
    dataset_version: int
    share: float


class WeightsFile(Part):
    """A file of tensors; `path` is relative to the model."""

    path: RelativePath
    bytes: NonNegativeInt
    sha256: Digest


class Member(Part):
    """A model of an ensemble, whose files are copied beside the document of the ensemble."""

    uri: str
    """The model that was copied."""
    weight: float
    """What its output counts; the weights of all members sum to 1."""
    artifact: ModelArtifact
    """What is stored of it."""


class Ensemble(Part):
    """The models whose outputs are combined."""

    by: Combination
    """`mean`: of classes the mean of probabilities, else of outputs. `vote`: the share of the votes for each class."""
    members: tuple[Member, ...]
    """The models, of which the first one's recipe has the metrics and the `predict` of the ensemble."""


class ModelArtifact(Document):
    """What a model consists of, and what it was trained on."""

    KIND: ClassVar[str] = "model artifact"

    recipe: ImportPath
    """The import path of the recipe, `module:name`."""
    recipe_params: dict[str, Any]
    """The recipe's keyword arguments."""
    inputs: tuple[Column, ...]
    """The input columns, in the order in which the model takes them."""
    label: Column | None
    """The label column, None for a recipe without one, or with heads."""
    heads: dict[str, Column] = {}
    """The label column of each head, by its name, for a recipe with heads."""
    normalization: dict[str, Normalization]
    """The scaling of each normalized input, by column."""
    fitted: FittedReference | None = None
    """What its dataset was fitted by: the values of categories, and the names of classes."""
    weights: tuple[WeightsFile, ...]
    """The files of the weights."""
    weights_sha256: Digest
    """The sha256 of the only file of the weights, or of the checksums of all files."""
    ensemble: Ensemble | None = None
    """The members of an ensemble, whose `recipe` is that of the first. It has no training of its own."""
    aliases: dict[str, str] = {}
    """The names of tensors that are not stored, because they are the same as another one, whose name follows."""
    dataset: str
    """The URI of the dataset; `dataset_hash` and `dataset_version` name its content."""
    dataset_hash: Digest
    dataset_version: int
    mix: tuple[MixedIn, ...] = ()
    """The datasets that were mixed in."""
    start_from: str | None = None
    """The model whose weights its training began with, `MODEL@VERSION`, if any."""
    metrics: dict[str, float]
    """The metrics of the best epoch."""
    epochs: int
    """How many epochs were trained."""
    workers: int
    """How many workers trained, for `seconds` on `device` ("cpu" or "cuda")."""
    seconds: float
    device: str
    application: ApplicationId
    """The Spark application, "" outside of one."""
    written_at: str
    """When the artifact was written, ISO 8601."""
    versions: dict[str, str]
    """Versions of libraries, by name."""

    def place(self, uri: str) -> Self:
        """Return the artifact. Raises TrainyardError if a file of the weights is outside of its folder."""
        for file in self.weights:
            if not file.path.startswith(f"{self.folder}/"):
                raise TrainyardError(f"{uri} names weights in {file.path!r}, which is not in its folder {self.folder}.")
        return self

    def references(self) -> Iterator[Reference]:
        """Yield the versions of the datasets that the model was trained on, and what its recipe reads.

        An ensemble refers to its members, and to what each of them read.
        """
        for member in self.ensemble.members if self.ensemble else ():
            yield Reference(member.uri, member.artifact.weights_sha256)
            yield from member.artifact.references()
        if self.ensemble:
            return
        yield Reference(self.dataset, self.dataset_version)
        yield from (Reference(mixed.dataset, mixed.dataset_version) for mixed in self.mix)
        yield from find_results(self.recipe_params)
        if self.start_from:
            yield refer_to_model(self.start_from)

    @property
    def recipes(self) -> tuple[str, ...]:
        """The import paths of the recipes that loading the model calls."""
        if self.ensemble is None:
            return (self.recipe,)
        return tuple(dict.fromkeys(path for member in self.ensemble.members for path in member.artifact.recipes))

    @property
    def labels(self) -> dict[str, Column]:
        """The label columns by head; the name of the only head of a recipe without heads is empty."""
        return self.heads or ({ONLY: self.label} if self.label else {})

    @property
    def folder(self) -> str:
        """The folder of the artifact, relative to the model."""
        return self.weights_sha256[:16]

    def read_fitted(self, model: str) -> FittedState:
        """Return what the dataset was fitted by; an empty state if it was not.

        Args:
            model: The URI of the model.

        Raises:
            TrainyardError: The document beside the weights is missing, or is another one.
        """
        if self.fitted is None:
            return FittedState(options={})
        return fitted_state.read(uris.join(model, self.folder, fitted_state.FILE), self.fitted)


Member.model_rebuild()
Ensemble.model_rebuild()
ModelArtifact.model_rebuild()


def member_uri(model: str, artifact: ModelArtifact, number: int) -> str:
    """Return the URI at which the copy of a member of an ensemble is a model, counted from 0."""
    return uris.join(model, artifact.folder, "members", str(number))


def exists(name: str) -> bool:
    """Return whether there is a model at a URI, in any version."""
    return storage.exists(uris.join(split_version(name)[0], "model.json"))


def epoch_model_uri(model: str, number: int) -> str:
    """Return the URI of the model after an epoch, counted from 1."""
    return uris.join(model, "epochs", f"{number:03d}")


def find(name: str) -> tuple[str, ModelArtifact]:
    """Return the URI of a model and its current artifact, or that of the version which `name` ends with.

    Args:
        name: The URI of the model. `MODEL@1a2b` is the version whose weights have a sha256 that begins so.

    Raises:
        TrainyardError: There is no such model or version, or several versions begin so.
    """
    model, version = split_version(name)
    return model, read_version(model, version) if version else read_current(model)


def pin(name: str) -> str:
    """Return the name of a model with the version that it means now; that of a file of weights as it is.

    Raises:
        TrainyardError: See `find`.
    """
    if name.endswith(WEIGHTS_FILE):
        return name
    model, artifact = find(name)
    return add_version(model, artifact.weights_sha256)


def find_since(since: int | str | None, dataset: str) -> int | None:
    """Return the version of a dataset after which rows are read.

    Args:
        since: The version; or the URI of the model that was trained on it, which may end with a version of its own.
        dataset: The URI of the dataset.

    Raises:
        TrainyardError: There is no such model, or it was trained on another dataset.
    """
    if not isinstance(since, str):
        return since
    _, trained = find(since)
    if trained.dataset.rstrip("/") != dataset.rstrip("/"):
        raise TrainyardError(
            f"dataset_since={since!r} was trained on {trained.dataset}, and dataset= is {dataset}; write a model of "
            "this dataset, or the number of a version."
        )
    return trained.dataset_version


def read_version(model: str, version: str) -> ModelArtifact:
    """Read the artifact of a version of a model.

    Args:
        model: The URI of the model.
        version: The sha256 of its weights, or the beginning of it.

    Raises:
        TrainyardError: There is none, or several begin so.
    """
    found = [version[:16]] if len(version) >= 16 else list_versions(model, version)
    if len(found) > 1:
        raise TrainyardError(f"{model} has several versions {version!r}: {', '.join(found)}. Write more of its digits.")
    try:
        artifact = ModelArtifact.load(uris.join(model, found[0], "model.json"))
        if artifact.weights_sha256.startswith(version):
            return artifact
        raise FileNotFoundError
    except (FileNotFoundError, IndexError):
        existing = ", ".join(list_versions(model)) or "none"
        raise TrainyardError(
            f"{model} has no version {version}; it has {existing}. If it was removed, train it again, or write the "
            "model's name alone for its newest weights."
        ) from None


def list_versions(model: str, prefix: str = "") -> list[str]:
    """Return the versions of a model that begin with `prefix` and are whole: the first 16 digits of each sha256."""
    folders = [name for name in storage.list_names(model) if _FOLDER.fullmatch(name) and name.startswith(prefix)]
    return [folder for folder in folders if storage.exists(uris.join(model, folder, "model.json"))]


def read_current(model: str) -> ModelArtifact:
    """Read the current artifact of a model. Raises TrainyardError if there is none."""
    try:
        return ModelArtifact.load(uris.join(model, "model.json"))
    except FileNotFoundError:
        raise TrainyardError(
            f"{model} is not a model: it has no model.json. Write it with TrainOperator, or with trainyard.trainer.fit."
        ) from None
