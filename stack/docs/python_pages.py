"""The pages of the Python interface and of the fields of stored documents, from docstrings and signatures."""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Mapping, Sequence
from types import ModuleType, NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from stack.docs import docstrings
from stack.docs.markdown import code, literal, page, section, table
from stack.docs.options import describe_default, describe_type, model_default
from trainyard.files import storage

Names = Mapping[str, Sequence[str]]
"""Modules, and the names of each that a section describes."""

INTERFACE: Mapping[str, Names] = {
    "Train": {
        "trainyard.trainer": (
            "Recipe", "Head", "fit", "FitResult", "Run", "Batch", "Strategy", "from_lightning", "MLflow", "TensorBoard",
        ),
        "trainyard.schemas.specs.train": ("TrainOptions",),
    },
    "Scripts": {"trainyard.trainer": ("store_checkpoints", "report_metrics")},
    "Datasets": {
        "trainyard.trainer": (
            "Dataset", "Portion", "decode_rgb", "decode_gray", "CenterCrop", "RandomResizedCrop", "TrainyardDataModule",
            "TrainyardTrainer",
        ),
        "trainyard.etl": ("register",),
    },
    "Models": {"trainyard.trainer": ("load_model", "TrainedModel", "export")},
    "DataFrames": {
        "trainyard.etl": (
            "shrink_images", "DatasetScan", "evaluate", "predict", "features", "TrainyardEstimator", "TrainyardModel",
        ),
    },
}  # fmt: skip
DOCUMENTS: Mapping[str, Names] = {
    "Specs": {
        "trainyard.schemas.specs": (
            "TaskKey", "Source", "Expectation", "Drift", "Category", "ExportSpec", "FeaturizeSpec", "TrainOptions",
            "TrainSpec", "ScriptSpec", "EvaluateSpec", "PredictSpec",
        ),
    },
    "Datasets, models, runs": {
        "trainyard.schemas.datasets.manifest": ("DatasetManifest", "Column", "Statistics"),
        "trainyard.schemas.datasets.fitted_state": ("FittedState", "FittedReference", "Vocabulary"),
        "trainyard.schemas.model_artifact": ("ModelArtifact",),
        "trainyard.schemas.runs.checkpoint": ("Checkpoint",),
        "trainyard.schemas.runs.script_checkpoint": ("ScriptCheckpoint",),
        "trainyard.schemas.runs.run_record": ("RunRecord",),
        "trainyard.schemas.runs.failure": ("Failure",),
        "trainyard.schemas.runs.owner": ("Owner",),
        "trainyard.schemas.runs.worker_progress": ("GroupProgress",),
    },
    "Events": {"trainyard.schemas.runs.events": ("EventLog", "read")},
}  # fmt: skip
MEMBERS = {
    "Run": ("model", "prepare", "track", "steps", "batches", "report", "autocast", "publish"),
    "Batch": ("parts", "backward", "report", "randn", "rand"),
    "EventLog": ("span", "add", "counter", "instant"),
}
"""The methods and properties that are described, of classes that have others for the package itself."""
ALL_MEMBERS = ("Strategy", "TrainedModel")


def render_interface() -> str:
    """Return the page of the Python interface."""
    return page(
        "Python interface",
        "The interface for recipes, notebooks and scripts; it needs no Airflow. [Strategies](strategies.md) are "
        "objects of `trainyard.trainer`, too.",
        *_render_sections(INTERFACE),
        section(
            "Files",
            _import("trainyard.files", "storage"),
            "A file is named by a path or a URI, of any storage that a connection may have.",
            table(["function", "what it does"], _list_functions(storage)),
        ),
    )


def render_documents() -> str:
    """Return the page of the fields of stored documents."""
    return page("Schema reference", "The fields of the stored [schemas](schemas.md).", *_render_sections(DOCUMENTS))


def _render_sections(sections: Mapping[str, Names]) -> list[str]:
    return [
        section(title, *(_describe(module, name) for module, names in modules.items() for name in names))
        for title, modules in sections.items()
    ]


def _describe(module: str, name: str) -> str:
    value = getattr(importlib.import_module(module), name)
    if not inspect.isclass(value):
        return section(code(name), _import(module, name), *_describe_function(value, name), level=3)
    return section(
        code(name),
        _import(module, name),
        *(_describe_document(value) if issubclass(value, BaseModel) else _describe_class(value)),
        *(_describe_member(value, name, member) for member in _list_members(value)),
        level=3,
    )


def _import(module: str, name: str) -> str:
    return f"```python\nfrom {module} import {name}\n```"


def _describe_document(model: type[BaseModel]) -> list[str]:
    return [literal(docstrings.read(model).text), _list_fields(model)]


def _describe_class(value: type) -> list[str]:
    docstring = docstrings.read(value)
    constructor = inspect.signature(value)
    is_called = set(constructor.parameters) <= {name.lstrip("*") for name in docstring.entries}
    members = {name: inspect.getattr_static(value, name) for name in dir(value)}
    annotations = {name: parameter.annotation for name, parameter in constructor.parameters.items()}
    annotations |= {
        name: inspect.signature(member.fget).return_annotation
        for name, member in members.items()
        if isinstance(member, property) and member.fget
    }
    for one in reversed(value.__mro__):
        annotations |= inspect.get_annotations(one)
    return [
        literal(docstring.text),
        _list_entries(docstring.entries, constructor if is_called else None, annotations),
        _list_errors(docstring),
    ]


def _describe_function(value: Any, name: str) -> list[str]:
    docstring = docstrings.read(value)
    signature = inspect.signature(value)
    returned = signature.return_annotation
    text = docstring.returns
    if text or returned not in (None, "None", inspect.Signature.empty):
        kind = code(describe_type(returned)) if returned is not inspect.Signature.empty else ""
        text = f"**Returns** {': '.join(filter(None, (kind, literal(text))))}"
    return [
        code(f"{name}{_describe_parameters(value)}"), literal(docstring.text),
        _list_entries(docstring.entries, signature, {}), text, _list_errors(docstring),
    ]  # fmt: skip


def _describe_parameters(function: Any) -> str:
    """Return the parameters of a function in brackets, without annotations, `self` and defaults that are no values."""
    signature = inspect.signature(function)
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty, default=_Shown(parameter.default))
        if parameter.default is not inspect.Parameter.empty
        else parameter.replace(annotation=inspect.Parameter.empty)
        for name, parameter in signature.parameters.items()
        if name not in ("self", "cls")
    ]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


class _Shown:
    """A default as a signature shows it."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __repr__(self) -> str:
        text = json.dumps(self._value) if isinstance(self._value, str) else repr(self._value)
        return "..." if text.startswith("<") else text


def _describe_member(owner: type, name: str, member: str) -> str:
    value = inspect.getattr_static(owner, member)
    value = getattr(value, "__func__", value)
    is_property = isinstance(value, property)
    parts = [literal(docstrings.read(value).text)] if is_property else _describe_function(value, member)
    return section(code(f"{name}.{member}"), *parts, level=4)


def _list_functions(module: ModuleType) -> list[list[str]]:
    """Return a row for each public function of a module: how it is called, and the first paragraph of its docstring."""
    own = [
        value for value in vars(module).values() if inspect.isfunction(value) and value.__module__ == module.__name__
    ]
    return [
        [code(f"{value.__name__}({', '.join(inspect.signature(value).parameters)})"),
         literal(docstrings.read(value).paragraphs[0])]
        for value in own if not value.__name__.startswith("_")
    ]  # fmt: skip


def _list_members(owner: type) -> list[str]:
    if owner.__name__ not in ALL_MEMBERS:
        return [*MEMBERS.get(owner.__name__, ())]
    return [name for name, value in vars(owner).items() if not name.startswith("_") and _is_described(value)]


def _is_described(value: Any) -> bool:
    return inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)


def _list_entries(
    entries: Mapping[str, str], signature: inspect.Signature | None, annotations: Mapping[str, Any]
) -> str:
    """Return the table of arguments or attributes; those of a signature with their defaults."""
    parameters = signature.parameters if signature else {}
    rows = []
    for name, text in entries.items():
        parameter = parameters.get(name.lstrip("*"))
        kind = parameter.annotation if parameter else annotations.get(name, "")
        kind = "" if kind is inspect.Parameter.empty else kind
        is_rest = parameter is not None and parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        row = [code(f"**{name.lstrip('*')}" if is_rest else name), code(describe_type(kind))]
        if signature:
            row.append("" if parameter is None or is_rest else _default(parameter.default))
        rows.append([*row, literal(text)])
    return table(["name", "type", *(["default"] if signature else []), "meaning"], rows)


def _list_fields(model: type[BaseModel]) -> str:
    """Return the table of a document's fields, inherited ones too."""
    texts = docstrings.read(model).entries
    kinds = get_type_hints(model)  # without what is annotated: checks, and what the field is
    rows = [
        [code(name), code(_name_type(kinds[name])), describe_default(model_default(model, name)),
         literal(texts.get(name, ""))]
        for name in model.model_fields
    ]  # fmt: skip
    return table(["field", "type", "default", "meaning"], rows)


def _name_type(kind: Any) -> str:
    """Return an evaluated annotation as it is written."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " | ".join(_name_type(part) for part in parts)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, parts))}]"
    if origin is not None:
        return f"{origin.__name__}[{', '.join(_name_type(part) for part in parts)}]"
    if kind in (NoneType, Ellipsis):
        return "None" if kind is NoneType else "..."
    return str(getattr(kind, "__name__", kind))


def _list_errors(docstring: docstrings.Docstring) -> str:
    if not docstring.raises:
        return ""
    return "**Raises** " + " ".join(f"{code(name)}: {literal(text)}" for name, text in docstring.raises.items())


def _default(value: Any) -> str:
    """Return a default as code that a reader could write; of a function of the package's own, nothing."""
    if value is inspect.Parameter.empty:
        return describe_default(value)
    if inspect.isclass(value):
        return code(value.__name__)
    return "" if repr(value).startswith("<") else describe_default(value)
