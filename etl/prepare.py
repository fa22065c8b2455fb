"""The user's `prepare(spark, source, **params) -> DataFrame`, found and called with clear errors."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from trainyard.contract.errors import TrainyardError


@dataclass(frozen=True)
class Prepare:
    """A function of the user's, and the module that it was found in."""

    path: str
    module: ModuleType
    name: str

    @classmethod
    def load(cls, path: str) -> Prepare:
        """What `module:name` names. Raises TrainyardError when there is no such function."""
        where, name = path.split(":")
        try:
            module = importlib.import_module(where)
        except Exception as error:
            raise TrainyardError(
                f"prepare={path!r} cannot be imported: {type(error).__name__}: {error}. It must be importable on the "
                "cluster: put the module in the DAG folder, beside the DAG."
            ) from error
        if not callable(getattr(module, name, None)):
            defined = [name for name, value in vars(module).items() if inspect.isfunction(value) and name[0] != "_"]
            raise TrainyardError(
                f"prepare={path!r}: {where} has no function {name!r}; it has {', '.join(defined) or 'none'}."
            )
        return cls(path, module, name)

    def __call__(self, spark: SparkSession, source: DataFrame, params: Mapping[str, Any]) -> DataFrame:
        """What it makes of the source. Raises TrainyardError when that is no DataFrame."""
        function = getattr(self.module, self.name)
        try:
            inspect.signature(function).bind(spark, source, **params)
        except TypeError as error:
            raise TrainyardError(
                f"prepare={self.path!r} cannot be called as prepare(spark, source, **prepare_params) with "
                f"prepare_params={dict(params)}: {error}."
            ) from error
        frame = function(spark, source, **params)
        if not isinstance(frame, DataFrame):
            raise TrainyardError(f"prepare={self.path!r} returned {type(frame).__name__}; it must return a DataFrame.")
        return frame
