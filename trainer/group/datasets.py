"""Choose the versions of what a training reads: those of its checkpoints where it resumes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from trainyard.files import storage, uris
from trainyard.schemas import model_artifact
from trainyard.schemas.datasets import manifest as manifests
from trainyard.schemas.datasets.manifest import DatasetManifest
from trainyard.schemas.runs import checkpoint
from trainyard.schemas.runs.input_versions import InputVersions
from trainyard.schemas.specs.train import TrainSpec
from trainyard.schemas.version_suffix import split_version

Named = TypeVar("Named", int | str | None, str | None)


def choose_versions(spec: TrainSpec, checkpoints: str) -> tuple[TrainSpec, list[tuple[str, DatasetManifest]]]:
    """Return the spec with the versions of models, and the URIs and manifests of the dataset and of its `mix`.

    Where the spec names no version, it is the newest. An attempt that finds checkpoints of an earlier one reads the
    versions of that one, because a checkpoint fits no other data; unless the task was cleared in between, or they have
    expired. It began with the model that the earlier one began with, whatever the name means now.

    Args:
        spec: The training.
        checkpoints: The URI of the directory of its checkpoints.
    """
    key = spec.task_key
    document = uris.join(checkpoints, f"versions-{key.first_try}.json")
    resumes = key.try_number > key.first_try and next(iter(checkpoint.list_checkpoints(checkpoints)), None) is not None
    earlier = InputVersions.load(document) if resumes and storage.exists(document) else None
    if earlier:
        start_from = _choose_model(spec.start_from, earlier.start_from)
        since = _choose_model(spec.dataset_since, earlier.dataset_since)
        spec = spec.model_copy(update={"start_from": start_from, "dataset_since": since})
    read = earlier.datasets if earlier else {}
    number = _choose_version(spec.dataset, spec.dataset_version, read)
    since = model_artifact.find_since(spec.dataset_since, spec.dataset)
    datasets = [(spec.dataset, manifests.read_version(spec.dataset, number, since))]
    for mixed in spec.mix:
        number = _choose_version(mixed.dataset, mixed.version, read)
        datasets.append((mixed.dataset, manifests.read_version(mixed.dataset, number)))
    numbers = {uri: manifest.number for uri, manifest in reversed(datasets)}
    chosen = InputVersions(datasets=numbers, dataset_since=spec.dataset_since, start_from=spec.start_from)
    storage.replace(document, chosen.to_json().encode())
    return spec, datasets


def _choose_version(dataset: str, version: int | None, earlier: Mapping[str, int]) -> int | None:
    if version is None and earlier.get(dataset) in manifests.list_versions(dataset):
        return earlier[dataset]
    return version


def _choose_model(named: Named, earlier: Named) -> Named:
    """Return the version of a model that an earlier attempt has read, or None if the model did not exist then.

    One that is not pinned, or another model, is that of a DAG that was changed.
    """
    if not isinstance(named, str) or split_version(named)[1] is None:
        return named
    is_same = earlier is None or (isinstance(earlier, str) and split_version(named)[0] == split_version(earlier)[0])
    return earlier if is_same else named
