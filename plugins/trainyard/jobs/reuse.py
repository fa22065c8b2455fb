"""Hash what the rows of an export depend on, so that one whose source, code and options are unchanged is skipped."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Any

from trainyard import __version__
from trainyard.errors import summarize
from trainyard.files import storage
from trainyard.planning.job import Job
from trainyard.planning.shipping.imports import imported_files
from trainyard.schemas import model_artifact
from trainyard.schemas.datasets import fingerprint as fingerprints
from trainyard.schemas.specs.source import Source

_NOT_OPTIONS = ("task_key", "code", "dataset", "fingerprint", "skip_unchanged", "source", "sources", "model")
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
        `source=HASH code=HASH options=HASH`, `tables=?` for tables, and `model=HASH` for features. Empty if the source
        cannot be listed: a query, JDBC, storage that cannot be reached, or code that is not shipped.
    """
    spec = job.spec
    sources = spec["sources"] or {"source": spec["source"]}
    tables = {name for name, source in sources.items() if Source.model_validate(source).is_table}
    paths = {name: source["path"] for name, source in sources.items() if name not in tables}
    if None in paths.values():
        return ""
    try:
        files = {name: storage.list_files(path) for name, path in paths.items()}
        uri, model = model_artifact.find(spec["model"]) if "model" in spec else ("", None)
        modules = imported_files(spec["prepare"], dag_file)
        for recipe in model.recipes if model else ():
            modules |= imported_files(recipe, dag_file)
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
        "source": fingerprints.hash_value([sources, files]),
        "code": fingerprints.hash_value([__version__, {name: _file_hash(path) for name, path in modules.items()}]),
        "options": fingerprints.hash_value([application, counted]),
    }
    if tables:
        hashes["tables"] = fingerprints.UNKNOWN
    if model:
        hashes["model"] = model.weights_sha256[:16]
    return fingerprints.join(hashes)


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


def _file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
