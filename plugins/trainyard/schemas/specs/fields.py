"""Types of fields that several specs share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator

from trainyard.schemas.specs import metrics


def _import_path(value: str) -> str:
    module, colon, name = value.partition(":")
    parts = [*module.split("."), name]
    if not colon or not all(part.isidentifier() for part in parts):
        raise ValueError("write it as 'module:name', for example 'digits.recipe:convnet'")
    return value


def _module(value: str) -> str:
    if not all(part.isidentifier() for part in value.split(".")):
        raise ValueError("write it as 'package.module', for example 'digits.horovod_script'")
    return value


def _listed(*example: str) -> BeforeValidator:
    """Refuse a single string where a list of strings is expected."""

    def check(value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(f"write a list of strings, for example {list(example)}")
        return value

    return BeforeValidator(check)


def as_texts(value: Any) -> Any:
    """Convert values to the text by which the manifest counts them."""
    if isinstance(value, str | Mapping):
        raise ValueError("write a list of values, for example ['cat', 'dog']")
    return [str(item).lower() if isinstance(item, bool) else str(item) for item in value]


def _metric(value: str) -> str:
    if not metrics.is_known(value):
        names = ", ".join((*metrics.CLASSIFICATION, *metrics.REGRESSION, *metrics.RANKING))
        raise ValueError(f"write one of {names}, ndcg@10, or 'module:function' for a metric of your own")
    return _import_path(value) if metrics.is_custom(value) else value


ImportPath = Annotated[str, AfterValidator(_import_path)]
"""The import path of user code, `package.module:function`."""


Module = Annotated[str, AfterValidator(_module)]
"""The module of a user's program, `package.module`."""


Arguments = Annotated[tuple[str, ...], _listed("--epochs", "3")]
"""A program's command line, one string for each argument."""


Metric = Annotated[str, AfterValidator(_metric)]
"""The name of a metric, or `module:function` for a function that returns a torchmetrics metric."""


Precision = Literal["float32", "bfloat16", "float16"]


Format = Literal["mlflow", "onnx", "pt2"]
"""A format that a model can be written in: MLflow, ONNX, or torch.export."""
