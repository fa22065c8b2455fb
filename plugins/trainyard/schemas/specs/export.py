"""Specs of the jobs that write datasets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, cast

from pydantic import Field, PositiveInt, ValidationInfo, field_validator, model_validator

from trainyard.schemas.datasets.manifest import fold_name
from trainyard.schemas.references import Reference, find_results, refer_to_model
from trainyard.schemas.results import DatasetResult
from trainyard.schemas.specs.categories import Categories
from trainyard.schemas.specs.fields import AppliedModel, ImportPath, Name, NonEmptyText, Output, Params
from trainyard.schemas.specs.source import Drift, Expectation, ReadsSources, RowCount, refuse_overlap
from trainyard.schemas.specs.splits import FRACTIONS, Splits, have_times


class ExportSpec(ReadsSources):
    """Read a source, apply `prepare`, and write the result as a dataset."""

    KIND: ClassVar[str] = "export spec"
    ENTRY: ClassVar[str] = "trainyard.etl.jobs.exporting.export:run"
    RESULT = DatasetResult

    prepare: ImportPath
    """`module:function`, called as `prepare(spark, source, **prepare_params) -> DataFrame`; several `sources` are
    arguments by their names."""
    prepare_params: Params = {}
    """Keyword arguments of `prepare`."""
    dataset: Output
    """Where the dataset is written: a name below the storage root, or a URI. By default `DAG_ID/TASK_ID`, with the
    index of a mapped task that writes no partition."""
    partition: NonEmptyText | None = None
    """The part of the dataset that this export writes, for example "{{ ds }}"; the other partitions stay. None writes
    the whole dataset."""
    fingerprint: str = ""
    """The hash of source files, code and options that the operator computed; the job adds the versions of tables."""
    skip_unchanged: bool = False
    """Whether the job writes nothing if the versions of its tables are those of the dataset. The operator decides."""
    expect: dict[str, Expectation] = {}
    """Data quality checks: column -> a dict of `min`, `max`, `nulls` (largest fraction), `values` (the only values),
    `rows_per_value` (fewest rows), and `unique` (no value twice) or `unique_with` (with other columns). A violation
    fails the task, and nothing is kept; with `severity` `warn` it is a warning. Of `categories` and `label` the values
    are checked, not their indices."""
    expect_rows: RowCount | None = None
    """How many rows the export writes, for example `{"min": 1000, "max": 2000}`; with `severity` `warn` another number
    is a warning."""
    drift: Drift | None = None
    """How far columns may drift from the previous version, as a population stability index, for example `{"warn": 0.1,
    "fail": 0.25, "columns": ["age", "city"]}`; by default all columns but dates and times. None does not compare."""
    splits: Splits = FRACTIONS
    """Split name -> fraction, which sum to 1; or the date or time at which each split begins in the column `split_by`,
    so that the future never trains the past, `{"validation": "2026-10-01", "test": "2026-11-01"}`, with earlier rows in
    `train`; or a string column of `prepare` that names the split of each row, which is not stored."""
    split_by: Name | None = None
    """The column whose value decides the split, so that no key is in two splits; of dates or timestamps, if `splits`
    are times."""
    folds: Annotated[int, Field(ge=2)] | None = None
    """In how many parts of equal size the split `train` is divided, for cross-validation with `TrainOperator(fold=N)`.
    They are splits of their own: `fold-1`, `fold-2` and so on."""
    stratify: Name | None = None
    """The column within each value of which the fractions hold."""
    shapes: dict[str, tuple[PositiveInt, ...]] = {}
    """Column -> tensor shape, for flat array columns."""
    variable_length: tuple[str, ...] = ()
    """Array columns whose length differs from row to row."""
    categories: Categories = {}
    """Columns of strings, integers, booleans, or arrays of them, that become indices: 1 for the most frequent value in
    the split `train` (equally frequent ones in the order of their texts), 0 for null and for values that no row of this
    split has. A list of columns, or a dict of options: `{"city": {"min_count": 5, "max_size": 1000}}`."""
    label: Name | tuple[Name, ...] | None = None
    """The column of strings, integers or booleans that becomes the number of a class, in the order of its values, or a
    list of such columns. Each value must be in the split `train`."""
    nullable: tuple[Name, ...] = ()
    """Columns of single numbers, and of `label`, that may be null: labels of heads that a row does not have."""
    fit: ImportPath | None = None
    """`module:function`, called once as `fit(spark, rows, **fit_params)` with the training rows of `prepare(...,
    state=None)`. What it returns, values that JSON has, is stored, and `prepare` receives it as `state`, also in
    predictions. It needs `split_by`, or a column as `splits`."""
    fit_params: Params = {}
    """Keyword arguments of `fit`."""
    refit: bool = False
    """Whether to fit `categories`, `label` and `fit` anew. By default a dataset keeps what was fitted for its first
    version, as long as these options are the same."""
    seed: int = 0
    """The seed of the splits and of the shuffle."""
    rows_per_batch: PositiveInt = 4096
    """Rows of one record batch; fewer where they have more than 4 MiB."""
    shards: PositiveInt | None = None
    """The number of files. By default one for each core of the application; with a pair of `executors` one for each 256
    MB of the source, as far as all executors have cores."""

    @field_validator("dataset")
    @classmethod
    def _check_dataset(cls, dataset: str, fields: ValidationInfo) -> str:
        refuse_overlap(dataset, fields.data, "dataset", of_datasets=False)
        return dataset

    @model_validator(mode="after")
    def _check_consistency(self) -> ExportSpec:
        if self.split_by and self.stratify:
            raise ValueError("split_by and stratify exclude each other; remove one of them")
        if not self.fractions:
            beside = [("stratify", self.stratify), ("folds", self.folds)]
            beside += [("split_by", self.split_by)] if self.split_column else []
            for name, value in beside:
                if value is not None:
                    raise ValueError(
                        f"{name}={value!r} divides the rows by fractions, and splits={self.splits!r} are none; remove "
                        "one of them"
                    )
        if self.split_times and not self.split_by:
            raise ValueError(f"splits={self.splits} needs split_by=, the column of dates or timestamps")
        if self.folds and "train" not in self.splits:
            raise ValueError(f"folds={self.folds} divides the split 'train', and splits={self.splits} has none")
        if twice := [name for name in self.labels if name in self.categories]:
            raise ValueError(f"label={twice[0]!r} is in categories, too; remove it there: it becomes a class")
        if both := [name for name in self.nullable if name in self.categories]:
            raise ValueError(f"nullable={both[0]!r} is in categories, too; remove it there: null has the index 0")
        if self.fit and not (self.split_by or self.split_column):
            raise ValueError(
                f"fit={self.fit!r} needs split_by=, or a column as splits=, by which a row is in one split whatever "
                "prepare makes of it"
            )
        if self.fit_params and not self.fit:
            raise ValueError("fit_params go with fit=; write both")
        return self

    def references(self) -> Iterator[Reference]:
        """Yield what the source and the parameters name."""
        yield from super().references()
        yield from find_results([self.prepare_params, self.fit_params])

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns that become numbers of classes."""
        return (self.label,) if isinstance(self.label, str) else self.label or ()

    @property
    def indexed(self) -> tuple[str, ...]:
        """The columns whose values become indices."""
        return (*self.categories, *self.labels)

    @property
    def fit_options(self) -> dict[str, Any]:
        """The options that decide what is fitted, as JSON; empty if nothing is."""
        chosen = self.model_dump(mode="json", include={"categories", "label", "fit", "fit_params"})
        return chosen if self.categories or self.label or self.fit else {}

    @property
    def fractions(self) -> dict[str, float]:
        """The fraction of each split, with those of the folds in place of that of `train`; empty if there are none."""
        if isinstance(self.splits, str) or self.split_times:
            return {}
        fractions = cast(dict[str, float], self.splits)
        if not self.folds:
            return fractions
        fraction = fractions["train"] / self.folds
        folds = {fold_name(number): fraction for number in range(1, self.folds + 1)}
        return folds | {name: fraction for name, fraction in fractions.items() if name != "train"}

    @property
    def split_times(self) -> dict[str, str]:
        """The date or time at which each split begins; empty if they do not begin at times."""
        return cast(dict[str, str], self.splits) if have_times(self.splits) else {}

    @property
    def split_column(self) -> str | None:
        """The column that names the split of each row."""
        return self.splits if isinstance(self.splits, str) else None


class FeaturizeSpec(ExportSpec):
    """Export the output of `model`'s submodule `layer` as the column `features`, in place of the model's inputs."""

    KIND: ClassVar[str] = "featurize spec"
    ENTRY: ClassVar[str] = "trainyard.etl.jobs.featurize:run"

    model: AppliedModel
    """The model: a name below the storage root, a URI, or `train.output`, which also sets the version; `NAME@1a2b` is
    the version whose weights have a sha256 that begins so. By default the newest."""
    layer: Name
    """The submodule whose output becomes the features, by its name in the model, for example "encoder.pool"."""
    features: Name = "features"
    """The name of the feature column. It holds the layer's output, flattened, as float32."""

    @field_validator("fit")
    @classmethod
    def _check_fit(cls, fit: str | None) -> None:
        if fit is not None:
            raise ValueError("remove it: prepare gets what was fitted for the dataset of the model")

    def references(self) -> Iterator[Reference]:
        """Yield what the source and the parameters name, and the model."""
        yield from super().references()
        yield refer_to_model(self.model)
