"""Load and call a function of the user's, `(spark, frame, ..., **params) -> DataFrame`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from trainyard.errors import TrainyardError
from trainyard.schemas.datasets.fitted_state import STATE, FittedState
from trainyard.schemas.specs.source import FORMAT
from trainyard.schemas.validation.params import convert_texts


@dataclass(frozen=True)
class UserFunction:
    """A function that an option, such as `prepare`, names as `module:function`."""

    option: str
    path: str
    module: ModuleType
    name: str

    @classmethod
    def load(cls, option: str, path: str) -> UserFunction:
        """Import the function at `path`.

        Raises:
            TrainyardError: The module cannot be imported, or has no such function.
        """
        module_name, name = path.split(":")
        try:
            module = importlib.import_module(module_name)
        except Exception as error:
            raise TrainyardError(
                f"{option}={path!r} cannot be imported: {type(error).__name__}: {error}. The package "
                f"{module_name.partition('.')[0]!r} and your packages that it imports by name are shipped if they are "
                "beside the DAG or in a folder above; install all others on the nodes."
            ) from error
        if not callable(getattr(module, name, None)):
            defined = [name for name, value in vars(module).items() if inspect.isfunction(value) and name[0] != "_"]
            raise TrainyardError(
                f"{option}={path!r}: {module_name} has no function {name!r}; it has {', '.join(defined) or 'none'}."
            )
        return cls(option, path, module, name)

    def takes(self, name: str) -> bool:
        """Return whether the function has a parameter of this name, or of any name."""
        parameters = inspect.signature(getattr(self.module, self.name)).parameters
        return name in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())

    def take_state(self, fitted: FittedState) -> dict[str, Any]:
        """Return what `fit` returned for the dataset of a model as the argument of `prepare`, if there was a `fit`.

        Raises:
            TrainyardError: The function does not take it.
        """
        if not fitted.options.get("fit"):
            return {}
        if not self.takes(STATE):
            raise TrainyardError(
                f"{self.option}={self.path!r} has no parameter {STATE!r}, and the rows of the model were prepared with "
                f"what {fitted.options['fit']!r} returned. Add the parameter, and prepare rows as for the export."
            )
        return {STATE: fitted.state}

    def __call__(
        self, spark: SparkSession, frames: DataFrame | Mapping[str, DataFrame], params: Mapping[str, Any]
    ) -> DataFrame:
        """Call the function and return its DataFrame; see `call`.

        Raises:
            TrainyardError: As `call`; or it returns something else.
        """
        result = self.call(spark, frames, params)
        if not isinstance(result, DataFrame):
            raise TrainyardError(
                f"{self.option}={self.path!r} returned {type(result).__name__}; it must return a DataFrame."
            )
        return result

    def call(self, spark: SparkSession, frames: DataFrame | Mapping[str, DataFrame], params: Mapping[str, Any]) -> Any:
        """Call the function and return what it returns.

        Args:
            spark: The session.
            frames: The second argument, whatever its name; or several arguments by their names.
            params: Its other arguments, by name.

        Raises:
            TrainyardError: It does not accept `params`, or a value of one, or reads a dataset although its format is
                not registered.
        """
        function = getattr(self.module, self.name)
        params = convert_texts(f"{self.option}_params", function, params)
        first = (frames,) if isinstance(frames, DataFrame) else ()
        several = {} if isinstance(frames, DataFrame) else dict(frames)
        if both := several.keys() & params.keys():
            raise TrainyardError(f"{self.option}_params has {min(both)!r}, which is a source; rename one of them.")
        try:
            inspect.signature(function).bind(spark, *first, **several, **params)
        except TypeError as error:
            names = ", ".join(several or ["frame"])
            raise TrainyardError(
                f"{self.option}={self.path!r} cannot be called as {self.option}(spark, {names}, "
                f"**{self.option}_params) with {self.option}_params={dict(params)}: {error}."
            ) from error
        try:
            return function(spark, *first, **several, **params)
        except Exception as error:
            if f"Failed to find the data source: {FORMAT}" in str(error):
                raise TrainyardError(
                    f"{self.option}={self.path!r} uses format({FORMAT!r}) in a session that does not know it. Call "
                    "trainyard.etl.register(spark) before."
                ) from error
            raise
