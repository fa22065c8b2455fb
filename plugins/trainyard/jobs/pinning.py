"""Pin the versions of the datasets and models that a job reads: what is written meanwhile does not change it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from trainyard.errors import TrainyardError
from trainyard.files import storage, uris
from trainyard.jobs.options.locations import change_all, explain_missing_part
from trainyard.jobs.options.validation import is_pending
from trainyard.schemas import model_artifact
from trainyard.schemas.datasets.manifest import read_version
from trainyard.schemas.model_artifact import WEIGHTS_FILE
from trainyard.schemas.specs.fields import Kind
from trainyard.schemas.specs.job import JobSpec
from trainyard.schemas.specs.source import FORMAT
from trainyard.schemas.version_suffix import add_version, is_mistaken, split_version

_logger = logging.getLogger(__name__)


def pin_results(model: type[JobSpec], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a spec with the versions of datasets and models that are results of other tasks.

    The version of a dataset that its name ends with, `NAME@12`, becomes a field too; that of a model stays in its name.

    Args:
        model: The spec.
        fields: The fields, with the results.

    Raises:
        TrainyardError: Two versions of a dataset are named, or one that is no number.
    """
    pinned = dict(fields)
    if "dataset_version" in fields:
        number = fields["dataset_version"]
        pinned["dataset"], pinned["dataset_version"] = _pin_dataset(fields["dataset"], number, "dataset_version")
    if isinstance(source := fields.get("source"), Mapping):
        pinned["source"] = _pin_source(source)
    if isinstance(sources := fields.get("sources"), Mapping):
        pinned["sources"] = {name: _pin_source(_describe_source(source)) for name, source in sources.items()}
    if isinstance(mix := fields.get("mix"), list | tuple):
        pinned["mix"] = [_pin_mixed(mixed) for mixed in mix]
    return change_all(model, pinned, Kind.MODEL, pin_model)


def _pin_dataset(dataset: Any, version: Any, option: str) -> tuple[Any, Any]:
    """Return a dataset without its version, and its version: that of a result, of the name, or of the option."""
    if isinstance(dataset, Mapping):
        return dataset, dataset.get("version") if version is None else version
    name, number = split_version(dataset) if isinstance(dataset, str) else (dataset, None)
    if isinstance(dataset, str) and is_mistaken(dataset) and not is_pending(dataset):
        raise TrainyardError(f"dataset={dataset!r}: what follows @ is no version; write its number, as in 'NAME@12'")
    if number is None:
        return dataset, version
    if not number.isdecimal():
        raise TrainyardError(f"dataset={dataset!r}: the version of a dataset is a number, as in '{name}@12'")
    if version is not None and str(version) != number:
        raise TrainyardError(f"dataset={dataset!r} and {option}={version!r} are two versions; write one of them")
    return name, int(number)


def pin_model(value: Any) -> Any:
    """Return the name of a model with its version, if it is the result of another task; of a list, of each."""
    if isinstance(value, list | tuple):
        return [pin_model(item) for item in value]
    if isinstance(value, Mapping) and isinstance(value.get("weights_sha256"), str) and "uri" in value:
        return add_version(value["uri"], value["weights_sha256"])
    return value


def _describe_source(source: Any) -> Any:
    """Return a source as a dict; a path, or the result of another task, is its `path`."""
    is_described = isinstance(source, Mapping) and "uri" not in source
    return source if is_described else {"path": source}


def _pin_source(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a source with the format and the version of a dataset that its path names, or another task returned."""
    result, options = source.get("path"), source.get("options") or {}
    if not isinstance(options, Mapping):
        return source
    if isinstance(result, str) and source.get("format") in (None, FORMAT):
        name, number = split_version(result)
        if number is None or not number.isdecimal():
            return source
        if any(option.lower() == "version" and str(value) != number for option, value in options.items()):
            raise TrainyardError(f"source={result!r} and options={dict(options)} have two versions; write one of them")
        return {**source, "path": name, "format": FORMAT, "options": {"version": number, **options}}
    if not isinstance(result, Mapping):
        return source
    if isinstance(uri := result.get("uri"), str) and not is_pending(uri) and not uris.is_absolute(uri):
        return {**source, "path": None, "table": uri}  # predictions that are a table
    is_dataset = "content_hash" in result or result.get("version") is not None
    format = source.get("format") or (FORMAT if is_dataset else None)
    version = {"version": str(result["version"])} if result.get("version") is not None and format == FORMAT else {}
    return {**source, "format": format, "options": version | dict(options)}


def _pin_mixed(mixed: Any) -> Any:
    if not isinstance(mixed, Mapping) or "dataset" not in mixed:
        return mixed
    dataset, version = _pin_dataset(mixed["dataset"], mixed.get("version"), "version")
    return {**mixed, "dataset": dataset} | ({} if version is None else {"version": version})


def pin_models(model: type[JobSpec], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a rendered spec with the versions that its models have now; the driver starts later.

    A dataset that is not named is the one that the models were trained on.

    Args:
        model: The spec.
        spec: The fields.

    Raises:
        TrainyardError: A model does not exist, or the models of an evaluation without a dataset were trained on
            several.
    """

    def pin(name: Any) -> Any:
        if isinstance(name, list | tuple):
            return [pin(item) for item in name]
        return model_artifact.pin(name) if isinstance(name, str) else name

    pinned = change_all(model, spec, Kind.MODEL, pin)
    if "dataset" not in pinned or pinned["dataset"] is not None:
        return pinned
    names = [pinned["model"]] if pinned["model"] else [*pinned["models"]]
    trained = {name: model_artifact.find(name)[1] for name in names}
    versions = {(artifact.dataset, artifact.dataset_version) for artifact in trained.values()}
    if len(versions) > 1:
        described = ", ".join(f"{name} on {one.dataset}@{one.dataset_version}" for name, one in trained.items())
        raise TrainyardError(f"dataset= is not given, and the models were trained on several: {described}; write it")
    [(dataset, version)] = versions
    if not uris.is_absolute(dataset):
        raise TrainyardError(
            f"dataset= is not given, and {names[0]} was trained on {dataset!r}, a path of another process; write "
            "dataset="
        )
    return pinned | {"dataset": dataset, "dataset_version": spec["dataset_version"] or version}


def drop_missing_start(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a training without a model to start from that does not exist yet.

    Args:
        spec: The rendered fields.

    Raises:
        TrainyardError: A name has rendered to nothing, or to what is no model; or the model in `dataset_since` was
            trained on another dataset.
    """
    known = dict(spec)
    for option in ("start_from", "dataset_since"):
        name = spec[option]
        if not isinstance(name, str) or name.endswith(WEIGHTS_FILE) or split_version(name)[1]:
            continue
        if clauses := explain_missing_part(option, name):
            raise TrainyardError(clauses[0])
        if not model_artifact.exists(name):
            if storage.list_names(name):
                raise TrainyardError(
                    f"{option}={name!r} is no model: there are other files. Write a model"
                    + (", or the number of a version of the dataset" if option == "dataset_since" else "")
                )
            _logger.info("%s=%r does not exist yet: the training starts without it.", option, name)
            known[option] = None
    model_artifact.find_since(known["dataset_since"], spec["dataset"])
    return known


def explain_nothing_new(spec: Mapping[str, Any]) -> str:
    """Return why a training on what was added since a version has no rows; "" if it has some, or reads all.

    Args:
        spec: The fields of the training, with the versions of its models.

    Raises:
        TrainyardError: There is no such version of the dataset, or no such model.
    """
    since, uri = model_artifact.find_since(spec["dataset_since"], spec["dataset"]), spec["dataset"]
    if since is None:
        return ""
    dataset = read_version(uri, spec["dataset_version"])
    if dataset.list_added(since):
        return ""
    named = f"dataset_since={spec['dataset_since']!r}"
    trained = f"{named} was trained on version {since}" if isinstance(spec["dataset_since"], str) else named
    return f"{trained}, and version {dataset.number} of {uri} adds nothing to that"
