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
    """Strings, and not one alone, which would be taken letter by letter."""

    def check(value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(f"write a list of strings, for example {list(example)}")
        return value

    return BeforeValidator(check)


def _texts(value: Any) -> Any:
    """Values as the manifest counts them."""
    if isinstance(value, str | Mapping):
        raise ValueError("write a list of values, for example ['cat', 'dog']")
    return [str(item).lower() if isinstance(item, bool) else str(item) for item in value]


def _metric(value: str) -> str:
    if not metrics.known(value):
        every = ", ".join((*metrics.CLASSIFICATION, *metrics.REGRESSION, *metrics.RANKING))
        raise ValueError(f"there are {every}, ndcg@10, and 'module:function' for one of your own")
    return _import_path(value) if metrics.is_custom(value) else value


ImportPath = Annotated[str, AfterValidator(_import_path)]
"""Where user code lies: `package.module:function`."""


Module = Annotated[str, AfterValidator(_module)]
"""A user's program: `package.module`."""


Arguments = Annotated[tuple[str, ...], _listed("--epochs", "3")]
"""A program's command line, word by word."""


Metric = Annotated[str, AfterValidator(_metric)]
"""A metric's name, or the user's function that makes one of torchmetrics: `module:function`."""


Precision = Literal["float32", "bfloat16", "float16"]


Format = Literal["mlflow", "onnx", "pt2"]
"""What a model can be written as, beside a bundle: for MLflow, as ONNX, as torch.export's program."""
