"""The base class of operators that run a Spark stage without a worker group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, NonNegativeInt, PositiveInt, TypeAdapter, ValidationError

from trainyard.jobs.operator import JobOperator
from trainyard.jobs.options.base import Templated
from trainyard.jobs.options.common import CommonOptions
from trainyard.planning import executors as requests

_COUNT: TypeAdapter[int] = TypeAdapter(PositiveInt)


def _parse_executors(value: Any) -> int | tuple[int, int] | None:
    """Return a number of executors, or the pair (min, max)."""
    if value is None:
        return None
    try:
        if not isinstance(value, list | tuple):
            return _COUNT.validate_python(value)
        low, high = (_COUNT.validate_python(number) for number in value)
    except (ValidationError, ValueError):
        raise ValueError("write a number of executors, or a pair (min, max) for dynamic allocation") from None
    if low > high:
        raise ValueError("write the smaller number first")
    return low, high


class StageOptions(CommonOptions):
    """The options of operators that run a Spark stage, beside the fields of the spec."""

    executors: Annotated[Any, AfterValidator(_parse_executors)]
    """The number of executors on YARN, or a pair (min, max) for Spark's dynamic allocation. By default that of Spark's
    configuration."""
    cores_per_executor: PositiveInt | None
    """The cores that each executor requests from YARN, and the tasks that it runs at once. By default that of Spark's
    configuration, and enough for one task a GPU. On a local master its slots take the place of executors."""
    gpus_per_executor: NonNegativeInt
    """The GPUs that each executor requests. Each Spark task uses one of them, so as many run at once."""


class SparkStageOperator(JobOperator):
    """Run a job on Spark's executors."""

    OPTIONS: ClassVar[type[StageOptions]] = StageOptions

    def __init__(
        self,
        *,
        executors: Templated[int] | tuple[Templated[int], Templated[int]] | None = None,
        cores_per_executor: Templated[int] | None = None,
        gpus_per_executor: Templated[int] = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)

    def request_fields(self, options: Any, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return the executors and their GPUs, as fields of the Job."""
        requested = requests.of_stage(options.executors, options.cores_per_executor)
        return {"executors": requested, "gpus": options.gpus_per_executor}
