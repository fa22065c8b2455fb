"""Resolve the names of things in storage, and find which user code a job imports."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from airflow.sdk import BaseOperator
from pydantic import BaseModel

from trainyard.errors import TrainyardError
from trainyard.files import uris
from trainyard.jobs.options.base import list_options
from trainyard.jobs.options.validation import is_pending
from trainyard.planning.shipping.packages import user_package
from trainyard.schemas import model_artifact
from trainyard.schemas.heads import split_metric
from trainyard.schemas.specs import metrics
from trainyard.schemas.specs.fields import Kind
from trainyard.schemas.specs.job import JobSpec
from trainyard.schemas.specs.source import FORMAT, lies_below
from trainyard.schemas.specs.strategies import get_name, is_own

Change = Callable[[str, Any], Any]
"""Returns what replaces a value, from its path and the value."""


def replace_results(value: Any) -> Any:
    """Return the `uri` of another task's result, or a list with those of the results in it; else `value` itself."""
    if isinstance(value, list | tuple):
        return [replace_results(item) for item in value]
    return value["uri"] if isinstance(value, Mapping) and "uri" in value else value


def resolve_names(root: str, value: Any) -> Any:
    """Return the URI of a name below the storage root `root`, or a list of URIs; `value` itself if it is no name.

    Raises:
        TrainyardError: A name is not below the storage root.
    """
    if isinstance(value, list | tuple):
        return [resolve_names(root, item) for item in value]
    return uris.resolve(root, value) if isinstance(value, str) else value


def name_output(task: BaseOperator, is_mapped: bool) -> str:
    """Return the output of a task that names none: `DAG_ID/TASK_ID`, of a mapped one with its index.

    Mapped tasks that write partitions write them to one dataset.

    Args:
        task: The operator.
        is_mapped: Whether it is one of the tasks of a mapped operator.
    """
    name = f"{task.dag_id}/{task.task_id}" if task.has_dag() else "{{ dag.dag_id }}/{{ task.task_id }}"
    partition = getattr(task, "partition", None)
    if is_mapped:
        has_index = partition is None
    else:
        is_fixed = partition is None or (isinstance(partition, str) and "map_index" not in partition)
        has_index = is_fixed and task.get_closest_mapped_task_group() is not None
    return name + "/{{ ti.map_index }}" if has_index else name


def explain_missing_part(option: str, name: Any) -> list[str]:
    """Return a clause if a part of a rendered name is nothing, as where a template has no value; else none."""
    path = str(name).partition("://")[2] or str(name)
    if not {"", "None"}.intersection(path.removeprefix("/").split("/")):
        return []
    return [f"{option}={str(name)!r} has a part without a value: a template in it renders to nothing, or to None"]


def explain_shared_output(option: str, mapped: Mapping[str, Any]) -> list[str]:
    """Return a clause if all tasks of a mapped one write the same output; else none.

    Args:
        option: The option that names the output.
        mapped: The options that all tasks have in common, before they are rendered.
    """
    names = [str(mapped[name]) for name in (option, "partition") if mapped.get(name) is not None]
    if option not in mapped or any(word in name for name in names for word in ("map_index", "task.")):
        return []
    name = mapped[option]
    return [
        f"all tasks of this mapped one write {option}={name!r}, and the last one would replace the others; write "
        f"{option}='{name}/{{{{ ti.map_index }}}}'"
    ]


def explain_outputs_in_source(root: str, spec: Mapping[str, Any], outputs: Mapping[str, Any]) -> list[str]:
    """Return a clause for the first task whose output lies inside a source, and would be read with it; else none.

    Args:
        root: The storage root, a URI.
        spec: The fields of a job spec, as JSON; some may still be templates.
        outputs: The outputs of the tasks of the DAG, by the ids of the tasks.
    """
    several = spec.get("sources")
    sources = [spec.get("source"), *(several.values() if isinstance(several, Mapping) else ())]
    known = [source for source in sources if isinstance(source, Mapping) and source.get("format") != FORMAT]
    for source, (task_id, name) in itertools.product(known, outputs.items()):
        path = source.get("path")
        if not isinstance(path, str) or not isinstance(name, str) or not uris.is_valid_name(name):
            continue
        if lies_below(uris.resolve(root, name), path):
            return [
                f"source={path!r} contains what task {task_id!r} writes, {name!r}, and would be read with it; write "
                "the folder of the data alone"
            ]
    return []


def change_all(
    model: type[JobSpec], fields: Mapping[str, Any], kind: Kind, change: Callable[[Any], Any]
) -> dict[str, Any]:
    """Return the fields of a spec with `change` applied to those of a kind."""
    return _change_fields(model, fields, kind, lambda path, value: change(value))


def find_all(model: type[JobSpec], fields: Mapping[str, Any], kind: Kind) -> list[tuple[str, Any]]:
    """Return the values of a kind in the fields of a spec, each with its option."""
    found: list[tuple[str, Any]] = []
    _change_fields(model, fields, kind, lambda path, value: found.append((path, value)))
    names = {".".join(option.path): name for name, option in list_options(model).items()}
    return [(names.get(path, path), value) for path, value in found]


def _change_fields(
    model: type[BaseModel], fields: Mapping[str, Any], kind: Kind, change: Change, prefix: str = ""
) -> dict[str, Any]:
    """Return fields with `change` applied to those of a kind, and to their parts."""
    changed = dict(fields)
    for name, field in model.model_fields.items():
        path = f"{prefix}{name}"
        if name in fields and kind in field.metadata:
            changed[name] = change(path, fields[name])
        elif name in fields:
            changed[name] = _change_value(field.annotation, fields[name], kind, change, path)
    return changed


def _change_value(hint: Any, value: Any, kind: Kind, change: Change, path: str) -> Any:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return change(path, value) if kind in parts else _change_value(parts[0], value, kind, change, path)
    if origin in (Union, UnionType):
        for part in parts:
            value = _change_value(part, value, kind, change, path)
    elif origin is tuple and isinstance(value, list | tuple):
        items = [_change_value(parts[0], item, kind, change, f"{path}.{number}") for number, item in enumerate(value)]
        return tuple(items) if isinstance(value, tuple) else items
    elif origin is dict and isinstance(value, Mapping):
        return {name: _change_value(parts[1], item, kind, change, f"{path}.{name}") for name, item in value.items()}
    elif isinstance(hint, type) and issubclass(hint, BaseModel) and isinstance(value, Mapping):
        return _change_fields(hint, value, kind, change, f"{path}.")
    return value


def user_code(model: type[JobSpec], fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the import paths of user code in the fields of a spec, by option; those of templates are left out."""
    named = find_all(model, fields, Kind.METRIC)
    texts = [(option, name) for option, name in named if isinstance(name, str) and metrics.is_custom(name)]
    own = [(option, name if is_pending(name) else split_metric(name)[1]) for option, name in texts]
    strategies = [(option, get_name(value)) for option, value in find_all(model, fields, Kind.STRATEGY)]
    own += [(option, name) for option, name in strategies if is_own(name)]
    paths = dict([*find_all(model, fields, Kind.CODE), *own])
    return {option: path for option, path in paths.items() if isinstance(path, str) and not is_pending(path)}


def missing_code(model: type[JobSpec], fields: Mapping[str, Any], dag_file: Path) -> list[str]:
    """Return the first option whose user code is missing, with the reason; empty if all is there."""
    for option, path in user_code(model, fields).items():
        try:
            user_package(path, dag_file)
        except TrainyardError as error:
            return [f"{option}={str(error).removesuffix('.')}"]
    return []


def recipes_of_models(model: type[JobSpec], spec: Mapping[str, Any]) -> list[str]:
    """Return the recipes of the models that a job applies; loading the models imports them."""
    named = [name for _, name in find_all(model, spec, Kind.APPLIED_MODEL)]
    known = [name for name in named if isinstance(name, str) and not is_pending(name)]
    found = [model_artifact.find(name)[1] for name in known if model_artifact.exists(name)]
    return [recipe for artifact in found for recipe in artifact.recipes]
