"""What the rows of an export depend on, as a text by which exports are compared: `source=HASH code=HASH options=HASH`.

The versions of tables are found by Spark, in its catalog: Airflow writes `tables=?`, which the job replaces.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from trainyard.errors import TrainyardError
from trainyard.schemas.datasets import manifest as manifests
from trainyard.schemas.datasets.manifest import DatasetManifest

PARTS = {
    "source": "the source files", "tables": "the tables", "code": "the code", "options": "the options",
    "model": "the model",
}  # fmt: skip
UNKNOWN = "?"


def join(parts: Mapping[str, str]) -> str:
    """Return the text of the parts, each of which is a hash, or `?` until it is known."""
    return " ".join(f"{part}={value}" for part, value in parts.items())


def split(fingerprint: str) -> dict[str, str]:
    """Return the parts of a fingerprint."""
    return dict(part.split("=") for part in fingerprint.split())


def is_complete(fingerprint: str) -> bool:
    """Return whether all parts are known."""
    return UNKNOWN not in split(fingerprint).values()


def complete(fingerprint: str, versions: Mapping[str, Any]) -> str:
    """Return a fingerprint with the versions of the tables; "" if a table has none.

    Args:
        fingerprint: The fingerprint.
        versions: The version of each table by the name of its source; None for a table without versions.
    """
    if is_complete(fingerprint):
        return fingerprint
    return join(split(fingerprint) | {"tables": hash_value(versions)}) if all(versions.values()) else ""


def hash_value(value: Any) -> str:
    """Return a hash of a value that JSON has."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def find_unchanged(dataset: str, partition: str | None, fingerprint: str) -> tuple[DatasetManifest | None, str]:
    """Return the dataset if an export would write the same one, and the reason why, or why not.

    Args:
        dataset: The URI of the dataset.
        partition: The partition that the export writes; None for the whole dataset.
        fingerprint: The fingerprint of the export, "" if there is none.
    """
    if not fingerprint:
        return None, "the source files, the versions of tables or the code of prepare cannot be listed"
    try:
        manifest = manifests.read_current(dataset)
    except TrainyardError:
        return None, "there is no dataset yet"
    written = manifest.partitions.get(partition or "")
    if written is None or (partition is None and len(manifest.partitions) > 1):
        others = ", ".join(other or "an unnamed one" for other in manifest.partitions)
        return None, f"the dataset has other partitions: {others}"
    if not written.provenance.fingerprint:
        return None, f"version {written.version} has no fingerprint"
    if not is_complete(fingerprint):
        return None, "Spark knows the versions of its tables when it runs"
    now, then = split(fingerprint), split(written.provenance.fingerprint)
    changed = [description for part, description in PARTS.items() if now.get(part) != then.get(part)]
    if changed:
        return None, f"{' and '.join(changed)} changed since version {written.version}"
    provenance = written.provenance
    return manifest, (
        f"sources, code and options are those of version {written.version}, which application "
        f"{provenance.application} wrote at {provenance.written_at}"
    )
