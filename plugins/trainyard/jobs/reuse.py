"""Skip exports whose source files, code and options have not changed."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainyard import __version__
from trainyard.errors import TrainyardError, summarize
from trainyard.files import storage
from trainyard.planning.job import Job
from trainyard.planning.shipping.imports import imported_files
from trainyard.schemas import manifest as manifests
from trainyard.schemas import model_artifact
from trainyard.schemas.manifest import DatasetManifest

PARTS = {"source": "the source files", "code": "the code", "options": "the options", "model": "the model"}
_NOT_OPTIONS = ("task_key", "dataset", "fingerprint", "source", "sources", "model")
_logger = logging.getLogger(__name__)
_LINEAGE = "spark.openlineage."
"""How the settings begin that `lineage.inject_into_spark` adds, which differ in each run."""


def fingerprint(job: Job, dag_file: Path) -> str:
    """Hash what the output of an export depends on.

    Source files count by name, size and modification time. Code is the modules of `prepare` and `fit`, those of their
    packages that they import, and the files of the packages that are not Python.

    Args:
        job: The job. What it requests of resources does not count.
        dag_file: The file of the DAG, beside which user code is searched for.

    Returns:
        `source=HASH code=HASH options=HASH`, and `model=HASH` for features. Empty if the files cannot be listed: a
        source without a path (a table, a query, JDBC), storage that cannot be reached, or code that is not shipped.
    """
    spec = job.spec
    sources = spec["sources"] or {"source": spec["source"]}
    if any(source["path"] is None for source in sources.values()):
        return ""
    try:
        files = {name: storage.list_files(source["path"]) for name, source in sources.items()}
        uri, model = model_artifact.find(spec["model"]) if "model" in spec else ("", None)
        modules = imported_files(spec["prepare"], dag_file)
        modules |= imported_files(model.recipe, dag_file) if model else {}
        modules |= imported_files(spec["fit"], dag_file) if spec["fit"] else {}
        application = _describe_application(job)
    except Exception as error:  # each storage raises exceptions of its own; Spark may read what this process cannot
        _logger.info("The export has no fingerprint: %s", summarize(error))
        return ""
    if not all(files.values()) or not modules:
        return ""
    counted = {name: value for name, value in spec.items() if name not in _NOT_OPTIONS}
    counted |= {"model": uri} if model else {}
    hashes = {
        "source": _hash([sources, files]),
        "code": _hash([__version__, {name: _file_hash(path) for name, path in modules.items()}]),
        "options": _hash([application, counted]),
    }
    if model:
        hashes["model"] = model.weights_sha256[:16]
    return " ".join(f"{part}={value}" for part, value in hashes.items())


def find_unchanged(spec: Mapping[str, Any]) -> tuple[DatasetManifest | None, str]:
    """Return the dataset if an export of `spec` would write the same one, and the reason why, or why not."""
    if not spec["fingerprint"]:
        return None, "the source files or the code of prepare cannot be listed"
    try:
        manifest = manifests.read_current(spec["dataset"])
    except TrainyardError:
        return None, "there is no dataset yet"
    name = spec["partition"] or ""
    partition = manifest.partitions.get(name)
    if partition is None or (spec["partition"] is None and len(manifest.partitions) > 1):
        others = ", ".join(other or "an unnamed one" for other in manifest.partitions)
        return None, f"the dataset has other partitions: {others}"
    if not partition.provenance.fingerprint:
        return None, f"version {partition.version} has no fingerprint"
    now, then = map(_hashes, (spec["fingerprint"], partition.provenance.fingerprint))
    changed = [description for part, description in PARTS.items() if now.get(part) != then.get(part)]
    if changed:
        return None, f"{' and '.join(changed)} changed since version {partition.version}"
    provenance = partition.provenance
    return manifest, (
        f"source files, code and options are those of version {partition.version}, which application "
        f"{provenance.application} wrote at {provenance.written_at}"
    )


def _describe_application(job: Job) -> list[Any]:
    """Return what rows may depend on beside the spec, the same in each run."""
    conf = {name: value for name, value in (job.conf or {}).items() if not name.startswith(_LINEAGE)}
    files, jars = ([_describe_file(uri) for uri in uris] for uris in (job.files, job.jars))
    return [conf, job.env_vars, files, jars, job.packages]


def _describe_file(uri: str) -> Any:
    """Return the name and content of a file on this machine, whose path may differ from run to run, or another URI."""
    location, _, alias = uri.partition("#")
    path = Path(location.removeprefix("file:"))
    return [alias or path.name, storage.checksum(str(path))] if path.is_file() else uri


def _hashes(text: str) -> dict[str, str]:
    return dict(part.split("=") for part in text.split())


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
