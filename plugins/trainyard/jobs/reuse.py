"""Reuse: an export whose source files, code and options are those of the dataset that is there need not run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainyard import __version__, storage
from trainyard.errors import TrainyardError
from trainyard.planning.imports import reached
from trainyard.schemas import manifest as manifests
from trainyard.schemas import model_artifact
from trainyard.schemas.manifest import DatasetManifest

PARTS = {"source": "the source files", "code": "the code", "options": "the options", "model": "the model"}
_PLACES = ("task_key", "dataset", "fingerprint", "source")


def fingerprint(spec: Mapping[str, Any], dag_file: Path) -> str:
    """What the product of an export spec depends on, hashed: `source=... code=... options=...`, and `model=...`.

    Of source files names, sizes and times of change count; of code the module of `prepare`, those of its package that
    it imports, and the package's other files. Empty when files cannot be listed: a source without a path,
    storage out of reach, or code that is not shipped.
    """
    source = spec["source"]
    if source["path"] is None:
        return ""
    try:
        files = storage.list_files(source["path"])
        model = model_artifact.read_current(spec["model"]) if "model" in spec else None
        modules = reached(spec["prepare"], dag_file)
        modules |= reached(model.recipe, dag_file) if model else {}
    except (OSError, ValueError, RuntimeError, ImportError, SyntaxError, TrainyardError):
        return ""
    if not files or not modules:
        return ""
    hashes = {
        "source": _hash([source, files]),
        "code": _hash([__version__, {name: _file_hash(path) for name, path in modules.items()}]),
        "options": _hash({name: value for name, value in spec.items() if name not in _PLACES}),
    }
    if model:
        hashes["model"] = model.weights_sha256[:16]
    return " ".join(f"{part}={value}" for part, value in hashes.items())


def unchanged(spec: Mapping[str, Any]) -> tuple[DatasetManifest | None, str]:
    """The dataset, if an export of `spec` would write it again; and why, or why not, in words."""
    if not spec["fingerprint"]:
        return None, "the source's files or prepare's code cannot be listed from here"
    try:
        found = manifests.read_current(spec["dataset"])
    except TrainyardError:
        return None, "there is no dataset yet"
    name = spec["partition"] or ""
    partition = found.partitions.get(name)
    if partition is None or (spec["partition"] is None and len(found.partitions) > 1):
        others = ", ".join(other or "an unnamed one" for other in found.partitions)
        return None, f"the dataset has other partitions: {others}"
    if not partition.provenance.fingerprint:
        return None, f"version {partition.version} does not say what it was written from"
    now, then = map(_hashes, (spec["fingerprint"], partition.provenance.fingerprint))
    changed = [told for part, told in PARTS.items() if now.get(part) != then.get(part)]
    if changed:
        return None, f"{' and '.join(changed)} changed since version {partition.version}"
    wrote = partition.provenance
    return found, (
        f"source files, code and options are those of version {partition.version}, which application "
        f"{wrote.application} wrote at {wrote.written_at}"
    )


def _hashes(text: str) -> dict[str, str]:
    return dict(part.split("=") for part in text.split())


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
