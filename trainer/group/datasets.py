"""Choose the versions of the datasets that a training reads: those of its checkpoints where it resumes."""

from __future__ import annotations

import json
from collections.abc import Mapping

from trainyard import storage
from trainyard.schemas import checkpoint
from trainyard.schemas import manifest as manifests
from trainyard.schemas.manifest import DatasetManifest
from trainyard.schemas.specs.train import TrainSpec


def read_datasets(spec: TrainSpec, checkpoints: str) -> list[tuple[str, DatasetManifest]]:
    """Return the URIs and the manifests of the training's dataset and of its `mix`.

    Where the spec names no version, it is the newest. An attempt that finds checkpoints of an earlier one reads the
    versions of that one, because a checkpoint fits no other data; unless the task was cleared in between, or they have
    expired.

    Args:
        spec: The training.
        checkpoints: The URI of the directory of its checkpoints.
    """
    key = spec.task_key
    document = storage.join(checkpoints, f"versions-{key.first_try}.json")
    resumes = key.try_number > key.first_try and next(iter(checkpoint.list_checkpoints(checkpoints)), None) is not None
    earlier = json.loads(storage.read(document)) if resumes and storage.exists(document) else {}
    number = _choose_version(spec.dataset, spec.dataset_version, earlier)
    datasets = [(spec.dataset, manifests.read_version(spec.dataset, number, spec.dataset_since))]
    for mixed in spec.mix:
        number = _choose_version(mixed.dataset, mixed.version, earlier)
        datasets.append((mixed.dataset, manifests.read_version(mixed.dataset, number)))
    numbers = {uri: manifest.number for uri, manifest in reversed(datasets)}
    storage.replace(document, json.dumps(numbers).encode())
    return datasets


def _choose_version(dataset: str, version: int | None, earlier: Mapping[str, int]) -> int | None:
    if version is None and earlier.get(dataset) in manifests.list_versions(dataset):
        return earlier[dataset]
    return version
