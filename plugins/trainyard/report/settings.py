"""What was trained, on what and how: the settings of a training, for readers. Pure functions of its spec and result."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from trainyard.files import uris
from trainyard.schemas.document import Part
from trainyard.schemas.results import ModelResult
from trainyard.schemas.specs.job import Code
from trainyard.schemas.specs.strategies import StrategyOptions
from trainyard.schemas.specs.train import TrainOptions, TrainSpec
from trainyard.text import shorten

MAX_VALUE, MAX_NAME, MAX_LINE = 48, 120, 400
"""The characters of a value, of what distinguishes a training, and of a line."""
ALWAYS = ("epochs", "batch_size", "seed")
"""The options that are shown although they have their defaults."""


def describe_training(root: str, spec: TrainSpec, result: ModelResult | None = None) -> list[tuple[str, str]]:
    """Return names and values, in the order in which a reader asks for them.

    Args:
        root: The storage root, without which names of datasets and models are shown.
        spec: What the training was asked to do.
        result: What came of it; None for one that has not succeeded.
    """
    lines = [
        ("Loop", _call(spec.loop, spec.loop_params)),
        ("Recipe", _call(spec.recipe, spec.recipe_params)),
        ("Optimizer", ", ".join(result.optimizers) if result else ""),
        ("Options", ", ".join(_list_options(spec.options))),
        ("Data", _describe_data(root, spec, result)),
        ("Code", describe_code(spec.code)),
        ("Begins with", uris.shorten(root, spec.start_from or "")),
        ("Workers", f"{_describe_workers(spec, result)}, {_describe_strategy(spec.strategy)}"),
        ("Ran on", ", ".join(filter(None, (result.device, result.software))) if result else ""),
        ("Model", f"{result.parameters:,} parameters" if result and result.parameters is not None else ""),
    ]
    return [(name, shorten(value, MAX_LINE)) for name, value in lines if value]


def name_members(root: str, specs: Mapping[str, TrainSpec]) -> dict[str, str]:
    """Return what distinguishes each training of a mapped task from the others: task -> `rate=0.1, batch_size=32`.

    Args:
        root: The storage root, without which names of datasets and models are shown.
        specs: What the trainings of a run were asked to do, by task.
    """
    members: dict[str, dict[str, dict[str, str]]] = {}
    for task, spec in specs.items():
        if spec.task_key.map_index >= 0:
            members.setdefault(spec.task_key.task_id, {})[task] = flatten(root, spec)
    return {
        task: shorten(", ".join(f"{name}={_abbreviate(settings, name)}" for name in different), MAX_NAME)
        for of_task in members.values()
        for different in [find_different(of_task.values())]
        for task, settings in of_task.items()
    }


def describe_code(code: Code | None) -> str:
    """Return the version of the user's code: of its bundle or repository if it is known, or a checksum."""
    if code is None:
        return ""
    if code.bundle_version:
        return f"version {code.bundle_version} of the DAG bundle"
    if code.commit:
        state = {False: "", True: ", with changes that are not committed", None: ", perhaps with changes"}
        return f"commit {code.commit[:10]}{state[code.is_changed]}" + (
            f" (archive {code.archive})" if code.archive and code.is_changed is not False else ""
        )
    return f"archive {code.archive}" if code.archive else ""


def flatten(root: str, spec: TrainSpec, result: ModelResult | None = None) -> dict[str, str]:
    """Return what a person may vary, by name; a parameter that is named as an option has what has it in front.

    Args:
        root: The storage root, without which names of datasets and models are shown.
        spec: What the training was asked to do.
        result: What came of it, with the version of its data; None for one that has not succeeded.
    """
    settings = spec.model_dump(include={"recipe", "loop", "workers", "epoch_models"}) | spec.options.model_dump()
    settings |= {"data": _describe_data(root, spec, result), "start_from": uris.shorten(root, spec.start_from or "")}
    settings |= {"strategy": _describe_strategy(spec.strategy), "code": describe_code(spec.code)}
    settings |= {"device": result.device, "software": result.software} if result else {}
    for option, values in (("recipe_params", spec.recipe_params), ("loop_params", spec.loop_params)):
        settings |= {f"{option}.{name}" if name in settings else name: value for name, value in values.items()}
    return {name: str(value) for name, value in settings.items()}


def find_different(trainings: Collection[Mapping[str, str]]) -> list[str]:
    """Return the names of settings whose values are not the same in all trainings."""
    names = dict.fromkeys(name for settings in trainings for name in settings)
    return [name for name in names if len({settings.get(name) for settings in trainings}) > 1]


def _abbreviate(settings: Mapping[str, str], name: str) -> str:
    return shorten(settings.get(name, "default"), MAX_VALUE)


def _call(path: str | None, params: Mapping[str, Any]) -> str:
    """Return a function as one would call it; "" if there is none."""
    return f"{path}({', '.join(f'{name}={value!r}' for name, value in params.items())})" if params else path or ""


def _list_options(options: TrainOptions) -> Iterator[str]:
    """Yield the options that a person has set, and those that decide every training."""
    changed = _find_changed(options)
    for name in (*ALWAYS, *(name for name in changed if name not in ALWAYS)):
        yield f"{name}={getattr(options, name)!r}"


def _find_changed(options: Part) -> dict[str, Any]:
    """Return the fields whose values are not their defaults."""
    fields = type(options).model_fields
    return {name: getattr(options, name) for name in fields if getattr(options, name) != fields[name].default}


def _describe_data(root: str, spec: TrainSpec, result: ModelResult | None) -> str:
    version = result.dataset_version if result else spec.dataset_version
    parts = [_name_version(root, spec.dataset, version)]
    if spec.dataset_since is not None:
        since = f"version {spec.dataset_since}" if isinstance(spec.dataset_since, int) else spec.dataset_since
        parts.append(f"what was added since {uris.shorten(root, since)}")
    for mixed in spec.mix:
        parts.append(f"{mixed.share:.3g} of {_name_version(root, mixed.dataset, mixed.version)}")
    if result and result.rows is not None:
        parts.append(f"{result.rows:,} rows an epoch")
    return ", ".join(parts)


def _describe_workers(spec: TrainSpec, result: ModelResult | None) -> str:
    number = f"{result.workers}" if result else "–".join(map(str, dict.fromkeys((spec.min_workers, spec.max_workers))))
    return f"{number} worker{'s' if number != '1' else ''}"


def _describe_strategy(strategy: StrategyOptions) -> str:
    settings = {name: value for name, value in _find_changed(strategy).items() if name != "name"}
    return _call(strategy.name, settings)


def _name_version(root: str, dataset: str, version: int | None) -> str:
    return uris.shorten(root, dataset) + (f"@{version}" if version else "")
