"""Specs of the jobs that write datasets."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from pydantic import PositiveFloat, PositiveInt, model_validator

from trainyard.schemas.specs.fields import ImportPath
from trainyard.schemas.specs.job import JobSpec
from trainyard.schemas.specs.source import Drift, Expectation, Source


class ExportSpec(JobSpec):
    """Read `source`, hand it to `prepare`, write what that returns as a dataset.

    `splits` are fractions that sum to 1; a row's split depends on its content alone (or on the
    column `split_by`, so that one key never crosses splits), evenly within each value of `stratify`.
    `shapes` gives flat array columns the shape that they have in a batch; array columns named in
    `variable_length` may differ in length from row to row. With a `partition` the rows become this part of the dataset, and
    the rest stays as it is. What is not as `expect` says of a column, or has drifted too far from the version
    before, is not kept. `fingerprint` names source files, code and options, as the operator found them.
    """

    KIND: ClassVar[str] = "export spec"
    ENTRY: ClassVar[str] = "trainyard.etl.jobs.export:run"

    prepare: ImportPath
    prepare_params: dict[str, Any] = {}
    source: Source
    dataset: str
    partition: str | None = None
    fingerprint: str = ""
    expect: dict[str, Expectation] = {}
    drift: Drift | None = None
    splits: dict[str, PositiveFloat] = {"train": 0.8, "validation": 0.1, "test": 0.1}
    split_by: str | None = None
    stratify: str | None = None
    shapes: dict[str, tuple[PositiveInt, ...]] = {}
    variable_length: tuple[str, ...] = ()
    seed: int = 0
    rows_per_batch: PositiveInt = 4096
    shards: PositiveInt | None = None

    @model_validator(mode="after")
    def _sound(self) -> ExportSpec:
        total = sum(self.splits.values())
        if not math.isclose(total, 1.0, abs_tol=1e-6):
            raise ValueError(f"splits={self.splits} sum to {total:g}; fractions must sum to 1")
        if self.split_by and self.stratify:
            raise ValueError("split_by and stratify exclude each other; keep one of them")
        return self


class FeaturizeSpec(ExportSpec):
    """Export what the submodule `layer` of `model` makes of rows, as the column `features` beside their other ones."""

    KIND: ClassVar[str] = "featurize spec"
    ENTRY: ClassVar[str] = "trainyard.etl.jobs.featurize:run"

    model: str
    layer: str
    features: str = "features"
