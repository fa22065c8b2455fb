"""Types of fields that several specs share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, PositiveInt, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError, PydanticKnownError, to_json

from trainyard.files import uris
from trainyard.schemas.heads import split_metric
from trainyard.schemas.specs import metrics
from trainyard.schemas.validation.secrets import (
    EXPOSED,
    IN_CODE,
    IN_CREDENTIAL_STORE,
    REDACTED,
    find_secret_arguments,
    find_secrets,
)
from trainyard.schemas.version_suffix import is_mistaken, split_version

T = TypeVar("T")


class Kind(Enum):
    """What the value of a field is, in its annotation, for those who look for all values of a kind."""

    LOCATION = "a name below the storage root, or a URI"
    MODEL = "the location of a model, which may end with @ and a version"
    APPLIED_MODEL = "the location of a model that the job applies, whose recipe it imports"
    OUTPUT = "the location that the job writes to"
    CODE = "the import path of user code"
    METRIC = "the name of a metric, or the import path of one"
    STRATEGY = "the options of a strategy, whose name may be the import path of a class"
    FIXED = "known when the DAG is parsed: not a template"


@dataclass(frozen=True)
class Inlined:
    """In the annotation of a field: its own fields are options of the operator, by their names.

    Attributes:
        main: The one of them whose option has the name of the field instead. This option may also be all of them as a
            dict.
    """

    main: str = ""


def check_import_path(value: str) -> str:
    """Return a value that is `module:name`. Raises ValueError for any other."""
    module, colon, name = value.partition(":")
    parts = [*module.split("."), name]
    if not colon or not all(part.isidentifier() for part in parts):
        raise ValueError("write it as 'module:name', for example 'digits.recipe:convnet'")
    return value


def _module(value: str) -> str:
    if not all(part.replace("-", "_").isidentifier() for part in value.split(".")):
        raise ValueError("write it as 'package.module', for example 'digits.horovod_script'")
    return value


def refuse_string(*example: str) -> BeforeValidator:
    """Refuse a single string where a list of strings is expected."""

    def check(value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(f"write a list of strings, for example {list(example)}")
        return value

    return BeforeValidator(check)


def _as_text(value: Any) -> Any:
    """Convert a number, which a template in an option of text may render to."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _as_spark_text(value: Any) -> Any:
    """Convert a number or a truth value, as pyspark does."""
    return str(value).lower() if isinstance(value, bool) else _as_text(value)


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("write 1 or more characters other than spaces")
    return value


def as_texts(value: Any) -> Any:
    """Convert values to the text by which the manifest counts them."""
    if not isinstance(value, list | tuple):
        raise ValueError("write a list of values, for example ['cat', 'dog']")
    return [str(item).lower() if isinstance(item, bool) else str(item) for item in value]


def _metric(value: str) -> str:
    if not metrics.is_known(value):
        names = ", ".join((*metrics.CLASSIFICATION, *metrics.REGRESSION, *metrics.RANKING))
        raise ValueError(
            f"write one of {names}, ndcg@10, or 'module:function' for a metric of your own; of a head, 'HEAD/accuracy'"
        )
    _, name = split_metric(value)
    if metrics.is_custom(name):  # a module of a package: `toy/recipe:network` is the path of a file
        check_import_path(name if "." in name else value)
    return value


def refuse_secrets(names: Sequence[str], remedy: str) -> None:
    """Raise an error that does not repeat any value, if there are `names` of secrets."""
    if names:
        fields = {"names": ", ".join(names), "exposed": EXPOSED, "remedy": remedy}
        raise PydanticCustomError(REDACTED, "{names} has a secret, and {exposed}. {remedy}", fields)


def _params(value: dict[str, Any]) -> dict[str, Any]:
    refuse_secrets(find_secrets(value), IN_CODE)
    try:
        to_json(value)
    except ValueError:
        raise ValueError("write values that JSON has: strings, numbers, lists and dicts") from None
    return value


def _arguments(value: tuple[str, ...]) -> tuple[str, ...]:
    refuse_secrets(find_secret_arguments(value), IN_CODE)
    return value


def _location(value: str) -> str:
    refuse_secrets(find_secrets({"the URI": value}), IN_CREDENTIAL_STORE)
    if "://" in value and not uris.is_absolute(value):
        raise ValueError("it is not a URI; write the result of another task as `task.output`, not as text")
    if not uris.is_valid_name(value) or not value.rpartition("://")[2].strip("/"):
        raise ValueError(f"it is not below the storage root; {uris.VALID_NAME}")
    return value


def _model(value: str) -> str:
    if is_mistaken(value):
        raise ValueError("what follows @ is no version: write the first digits of the sha256, 0 to 9 and a to f")
    return value


def _output(value: str) -> str:
    name, version = split_version(value)
    if version is not None:
        raise ValueError(f"'@{version}' at its end names a version, which is not chosen; write {name!r}")
    return value


def _registered_model(value: str) -> str:
    if not re.fullmatch(r"[^/:'\"\n]{1,200}", value) or not value.strip():
        raise ValueError("write a name without slashes, colons and quotes, for example 'digits'")
    return value


def _mlflow(value: str) -> str:
    remedy = "Set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD in the environment of the nodes"
    refuse_secrets(find_secrets({"the URI": value}), remedy)
    return value


def _workers(value: Any) -> Any:
    """Return a number of workers, or the pair (min, max)."""
    if not isinstance(value, list | tuple):
        return _count(value)
    if len(value) != 2:
        raise ValueError("write a number of workers, or a pair (min, max)")
    low, high = map(_count, value)
    if low > high:
        raise ValueError("write the smaller number first")
    return low, high


def _count(value: Any) -> int:
    try:
        return _COUNT.validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        raise PydanticKnownError(first["type"], first.get("ctx")) from None  # type: ignore[arg-type]


_COUNT: TypeAdapter[int] = TypeAdapter(PositiveInt)


Fixed = Annotated[T, Kind.FIXED]
"""The type of an option that is known when the DAG is parsed, and cannot be a template."""


ImportPath = Annotated[str, AfterValidator(check_import_path), Kind.CODE]
"""The import path of user code, `package.module:function`."""


Module = Annotated[str, AfterValidator(_module), Kind.CODE]
"""The module of a user's program, `package.module`."""


Text = Annotated[str, BeforeValidator(_as_text)]
"""A string; a number becomes its text."""


SparkText = Annotated[str, BeforeValidator(_as_spark_text)]
"""The value of a Spark option or property; True becomes "true"."""


Name = Annotated[str, AfterValidator(_not_blank)]
"""The name of a column, a split or a submodule."""


NonEmptyText = Annotated[Name, BeforeValidator(_as_text)]
"""A string with a character other than spaces; a number becomes its text."""


Arguments = Annotated[tuple[Text, ...], refuse_string("--epochs", "3"), AfterValidator(_arguments)]
"""A program's command line, one string for each argument."""


Params = Annotated[dict[str, Any], AfterValidator(_params)]
"""Keyword arguments of user code. They are stored in clear text, so secrets are refused."""


Location = Annotated[str, AfterValidator(_location), Kind.LOCATION]
"""A name below the storage root, or a URI."""


Model = Annotated[Location, AfterValidator(_model), Kind.MODEL]
"""A model: a name below the storage root, or a URI; it may end with `@` and the beginning of the weights' sha256."""


AppliedModel = Annotated[Model, Kind.APPLIED_MODEL]
"""A model that the job applies."""


Output = Annotated[Location, AfterValidator(_output), Kind.OUTPUT]
"""The location that the job writes to."""


MLflowServer = Annotated[str, AfterValidator(_mlflow)]
"""The URI of an MLflow tracking server."""


RegisteredModel = Annotated[str, AfterValidator(_registered_model)]
"""The name of a registered model of MLflow."""


Metric = Annotated[str, AfterValidator(_metric), Kind.METRIC]
"""The name of a metric, or `module:function` for a function that returns a torchmetrics metric; of a head of a model,
`HEAD/NAME`."""


Workers = Annotated[int | tuple[int, int], BeforeValidator(_workers)]
"""A number of workers, or the pair (min, max)."""


Precision = Literal["float32", "bfloat16", "float16"]


Format = Literal["mlflow", "onnx", "pt2"]
"""A format that a model can be written in: MLflow, ONNX, or torch.export."""
