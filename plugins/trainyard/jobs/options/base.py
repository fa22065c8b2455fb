"""Options of operators and sensors: each is a field of a model, and a line in the signature of a constructor.

The field has the type, the text and the checks, the signature the name, the type and the default. Attributes, template
fields, fields of the spec and docstrings follow from both.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, TypeVar, Union, get_args, get_origin

from airflow.sdk import BaseOperator
from airflow.sdk.definitions.xcom_arg import ResolveMixin
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from trainyard.compat import conf
from trainyard.schemas import texts
from trainyard.schemas.document import Part
from trainyard.schemas.specs.fields import Inlined, Kind

T = TypeVar("T")
Templated = Union[T, str]  # noqa: UP007
"""A value, or a template that renders to one."""
ATTRIBUTES = {"output": "predictions", "label": "label_column"}
"""The attributes of options that have another name: Airflow's operators have an `output` and a `label` of their own."""


def _read_texts(operator: Any) -> dict[str, str]:
    """Return the texts of the options of a class's own constructor."""
    options = list_options(operator.SPEC) | list_options(operator.OPTIONS)
    own = inspect.signature(vars(operator)["__init__"]).parameters if "__init__" in vars(operator) else ()
    found = {name: texts.read_all(options[name].model).get(options[name].name) for name in own if name in options}
    return {name: text for name, text in found.items() if text}


class _OptionsType(type(BaseOperator)):  # type: ignore[misc]
    __doc__ = texts.complete_doc("Args:", _read_texts)


class HasOptions(metaclass=_OptionsType):
    """An operator or sensor whose options are fields of models.

    Arguments of a constructor that are options are attributes before its body runs.

    Attributes:
        SPEC: The spec of the job, for an operator that runs one.
        OPTIONS: The other options.
        OUTPUT: The option that names what the task writes, or None; of a job, the field of the spec of the type
            `Output`.
        PARAMETERS: The keyword arguments that the class and its bases accept, by name.
        HAS_RECORD: Whether its task has a run record, so that its end changes the report.
    """

    SPEC: ClassVar[type[Part]] = Part
    OPTIONS: ClassVar[type[Part]] = Part
    OUTPUT: ClassVar[str | None] = None
    PARAMETERS: ClassVar[Mapping[str, inspect.Parameter]] = {}
    HAS_RECORD: ClassVar[bool] = False
    template_fields: ClassVar[Sequence[str]] = ()
    template_fields_renderers: ClassVar[dict[str, str]] = {}
    is_one_of_several: bool
    """Whether it is one of the tasks of a mapped operator."""

    def __new__(cls, *args: Any, **options: Any) -> HasOptions:
        """Note whether Airflow unmaps a mapped operator."""
        operator: HasOptions = super().__new__(cls)
        vars(operator)["is_one_of_several"] = "_airflow_from_mapped" in options  # Airflow's __setattr__ needs more
        return operator

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.PARAMETERS = _list_parameters(cls)
        options = list_options(cls.SPEC) | list_options(cls.OPTIONS)
        fields = {ATTRIBUTES.get(name, name): options[name].field for name in options if name in cls.PARAMETERS}
        if "template_fields" not in vars(cls):
            own = [name for name, field in fields.items() if Kind.FIXED not in field.metadata]
            cls.template_fields = tuple(dict.fromkeys([*own, *cls.template_fields]))
        as_json = {name: "json" for name, field in fields.items() if _is_dict(field.annotation)}
        cls.template_fields_renderers = as_json | cls.template_fields_renderers
        if constructor := vars(cls).get("__init__"):
            own = [name for name in inspect.signature(constructor).parameters if name in options]
            cls.__init__ = _assign_first(constructor, own)  # type: ignore[method-assign]

    @property
    def output_name(self) -> Any:
        """What the task writes, as the operator names it; None if it writes nothing."""
        return getattr(self, ATTRIBUTES.get(self.OUTPUT, self.OUTPUT)) if self.OUTPUT else None

    def option_names(self) -> dict[str, str]:
        """Return the options that are parts of a field of the spec, by the path of the part.

        The field itself is there with the name "" if no option has its name.
        """
        names = {}
        for name, option in list_options(self.SPEC).items():
            field, *part = option.path
            if part and field not in self.PARAMETERS:
                names[field] = ""
            elif part and not self._is_whole(field):
                names[f"{field}.{part[0]}"] = name
        return names

    def spec_fields(self) -> dict[str, Any]:
        """Return the options as fields of the spec. None is the field's default for an option whose default is None."""
        fields: dict[str, Any] = {}
        for name, option in list_options(self.SPEC).items():
            if name not in self.PARAMETERS:
                continue
            value = getattr(self, ATTRIBUTES.get(name, name))
            if value is None and self.PARAMETERS[name].default is None and not option.field.is_required():
                value = option.field.get_default(call_default_factory=True)
            field, *part = option.path
            if part and not (field in self.PARAMETERS and self._is_whole(field)):
                fields.setdefault(field, {})[part[0]] = value
            elif not part or field == name:
                fields[field] = value
        return fields

    def find_unused(self) -> list[str]:
        """Return a clause for each option that says more of a field whose option is a dict of all, or is not given."""
        clauses = []
        for name, option in list_options(self.SPEC).items():
            field, *part = option.path
            is_set = part and name != field and name in self.PARAMETERS and getattr(self, name) is not None
            if is_set and field in self.PARAMETERS and self._is_whole(field):
                clauses.append(f"{name} goes with a {field} that is a path; write it into the dict of the {field}")
        return clauses

    def _is_whole(self, field: str) -> bool:
        """Return whether the option of an inlined field is a dict of its parts, not the main part alone."""
        value = getattr(self, field)
        return not isinstance(value, str | ResolveMixin) and not (isinstance(value, Mapping) and "uri" in value)


@dataclass(frozen=True)
class Option:
    """A field that is an option.

    Attributes:
        path: The names of the field and, if that is inlined, of its part.
        field: The field with the type and the text of the option.
        model: The model that has it.
        name: Its name there.
    """

    path: tuple[str, ...]
    field: FieldInfo
    model: type[BaseModel]
    name: str


@cache
def list_options(model: type[BaseModel]) -> dict[str, Option]:
    """Return the fields of a model by the names of their options, with the parts of those that are inlined."""
    options: dict[str, Option] = {}
    for name, field in model.model_fields.items():
        inlined = next((item for item in field.metadata if isinstance(item, Inlined)), None)
        if inlined is None:
            options[name] = Option((name,), field, model, name)
            continue
        parts = _find_model(field.annotation)
        for part, inner in parts.model_fields.items():
            if part == inlined.main:
                options[name] = Option((name, part), field, model, name)
            else:
                options[part] = Option((name, part), inner, parts, part)
    return options


def _find_model(annotation: Any) -> type[BaseModel]:
    """Return the model of an inlined field, which may also be None."""
    model: type[BaseModel] = next(part for part in (annotation, *get_args(annotation)) if hasattr(part, "model_fields"))
    return model


def _list_parameters(operator: type) -> dict[str, inspect.Parameter]:
    """Return the keyword arguments that a class and its bases accept, by name."""
    parameters: dict[str, inspect.Parameter] = {}
    for base in operator.__mro__:
        if "__init__" in vars(base) and base is not object:
            parameters = {**inspect.signature(vars(base)["__init__"]).parameters, **parameters}
    return {name: parameter for name, parameter in parameters.items() if name not in ("self", "args", "kwargs")}


def _assign_first(constructor: Callable[..., None], options: Collection[str]) -> Callable[..., None]:
    """Return a constructor that sets the attributes of its options, and then runs `constructor`."""
    parameters = inspect.signature(constructor).parameters

    @wraps(constructor)
    def assign(self: Any, *args: Any, **arguments: Any) -> None:
        for name in options:
            setattr(self, ATTRIBUTES.get(name, name), arguments.get(name, parameters[name].default))
        constructor(self, *args, **arguments)

    return assign


def _is_dict(kind: Any) -> bool:
    """Return whether values of a type are written as dicts, or None."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _is_dict(parts[0])
    if origin in (Union, UnionType):
        return all(part is NoneType or _is_dict(part) for part in parts)
    return origin is dict or (isinstance(kind, type) and issubclass(kind, Part))


def default(model: type[BaseModel], field: str) -> Any:
    """Return the default of a field of `model`."""
    return model.model_fields[field].get_default(call_default_factory=True)


def or_empty(value: Any) -> Any:
    """Return `value`, or an empty dict for None."""
    return {} if value is None else value


def as_lists(value: Any) -> Any:
    """Return a value with lists in place of other sequences in it, such as the results of a mapped task."""
    if isinstance(value, dict):
        return {key: as_lists(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | tuple):
        # Airflow's iterator requests a result beyond the last one, and logs an error.
        return [as_lists(value[index]) for index in range(len(value))]
    return value


def or_default_deferrable(value: bool | None) -> bool:
    """Return `value`, or for None Airflow's setting `default_deferrable` in section `[operators]`."""
    return conf.getboolean("operators", "default_deferrable", fallback=False) if value is None else value
