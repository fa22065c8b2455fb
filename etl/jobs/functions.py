"""A user's function `(spark, frame, **params) -> DataFrame`, found and called with clear errors."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from trainyard.errors import TrainyardError


@dataclass(frozen=True)
class UserFunction:
    """What `option` names, such as prepare, and the module that it was found in."""

    option: str
    path: str
    module: ModuleType
    name: str

    @classmethod
    def load(cls, option: str, path: str) -> UserFunction:
        """What `module:name` names. Raises TrainyardError when there is no such function."""
        where, name = path.split(":")
        try:
            module = importlib.import_module(where)
        except Exception as error:
            raise TrainyardError(
                f"{option}={path!r} cannot be imported: {type(error).__name__}: {error}. It must be importable on the "
                "cluster: put the module in the DAG folder, beside the DAG."
            ) from error
        if not callable(getattr(module, name, None)):
            defined = [name for name, value in vars(module).items() if inspect.isfunction(value) and name[0] != "_"]
            raise TrainyardError(
                f"{option}={path!r}: {where} has no function {name!r}; it has {', '.join(defined) or 'none'}."
            )
        return cls(option, path, module, name)

    def __call__(self, spark: SparkSession, frame: DataFrame, params: Mapping[str, Any]) -> DataFrame:
        """What it makes of the frame. Raises TrainyardError when that is no DataFrame."""
        function = getattr(self.module, self.name)
        try:
            inspect.signature(function).bind(spark, frame, **params)
        except TypeError as error:
            raise TrainyardError(
                f"{self.option}={self.path!r} cannot be called as {self.option}(spark, frame, **{self.option}_params) "
                f"with {self.option}_params={dict(params)}: {error}."
            ) from error
        made = function(spark, frame, **params)
        if not isinstance(made, DataFrame):
            raise TrainyardError(
                f"{self.option}={self.path!r} returned {type(made).__name__}; it must return a DataFrame."
            )
        return made
