"""Call a function in a Python worker of Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from trainyard.errors import TrainyardError

T = TypeVar("T")


def call_in_worker(spark: SparkSession, function: Callable[[], T]) -> T:
    """Return what a function returns in a Python worker, which imports what the driver does without: torch, a recipe.

    Args:
        spark: The session.
        function: The function. It is pickled, and so is what it returns.

    Raises:
        TrainyardError: The function raised one.
    """

    def apply(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            answer: T | TrainyardError
            try:
                answer = function()
            except TrainyardError as error:  # an error of the task would be retried
                answer = error
            yield pa.RecordBatch.from_pydict({"answer": [pickle.dumps(answer)]})

    [row] = spark.range(0, 1, 1, 1).mapInArrow(apply, "answer binary").collect()
    answer = pickle.loads(row.answer)  # noqa: S301  our worker's
    if isinstance(answer, TrainyardError):
        raise answer
    return answer  # type: ignore[no-any-return]
