"""Train and predict in the current Spark session with Spark ML's Estimator and Model, without Airflow.

>>> estimator = TrainyardEstimator(recipe="digits.recipe:convnet", store="hdfs:///runs", workers=2, epochs=5)
>>> estimator.fit(frame).transform(frame)  # the columns of `frame`, and those that the recipe's `predict` returns

This is the only module that both exports a dataset and trains on it: the steps of a pipeline, one after the other.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pyspark.ml import Estimator, Model
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import VectorUDT
from pyspark.ml.param import Param, Params
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DoubleType, FloatType, StructField

from trainyard.errors import TrainyardError
from trainyard.etl.datasource import columns, source
from trainyard.etl.datasource.options import WriteOptions
from trainyard.etl.fitting import encoding, fitting, vocabulary
from trainyard.etl.jobs import predict
from trainyard.etl.jobs.exporting import split_quality, splits
from trainyard.files import uris
from trainyard.schemas import model_artifact, texts
from trainyard.schemas.datasets import fitted_state, manifest
from trainyard.schemas.datasets.fitted_state import FittedReference
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.specs.categories import Categories, Category
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainOptions, TrainSpec
from trainyard.schemas.validation.complaints import complaint, complaints
from trainyard.trainer.group import supervisor
from trainyard.trainer.model import recipe as recipes
from trainyard.trainer.model.heads import Head
from trainyard.trainer.model.loss_kinds import OF_CLASSES, is_any
from trainyard.trainer.model.recipe import Recipe

P = TypeVar("P", bound=type)
_VECTOR_PREFIX = "__vector_"
_NO_PARAMS = {
    "task_key", "dataset", "dataset_version", "dataset_since", "mix", "model", "fold", "options", "loop", "loop_params",
}  # fmt: skip
"""The fields of the spec that follow from the export, and those of a loop of the user's own."""


def _build_param(name: str, doc: str) -> Any:
    # Spark ML declares the params of its own classes with this private method; checked against pyspark 4.2.0.
    return Param(Params._dummy(), name, doc, _to_json_value)


def _to_json_value(value: Any) -> Any:
    """Return a value as Spark ML saves it: the options of a strategy as a dict."""
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


def _add_accessors(cls: P) -> P:
    """Add the accessors that Spark ML's classes have: `getBatchSize` and `setBatchSize` for the param `batch_size`."""
    for name in [name for name, value in vars(cls).items() if isinstance(value, Param)]:
        suffix = name.title().replace("_", "")
        setattr(cls, f"get{suffix}", _build_getter(name))
        setattr(cls, f"set{suffix}", _build_setter(name))
    return cls


def _add_options(cls: P) -> P:
    """Add a param for each option of a training, with its text."""
    for model in (TrainSpec, TrainOptions):
        described = texts.read_all(model)
        for name in model.model_fields.keys() - _NO_PARAMS:
            setattr(cls, name, _build_param(name, described.get(name, "")))
    return cls


def _build_getter(name: str) -> Callable[[Any], Any]:
    return lambda self: self.getOrDefault(name)


def _build_setter(name: str) -> Callable[[Any, Any], Any]:
    return lambda self, value: self._set(**{name: value})


@_add_accessors
@_add_options
class TrainyardEstimator(Estimator, DefaultParamsReadable, DefaultParamsWritable):  # type: ignore[misc]
    """Train a recipe on a DataFrame.

    Each fit writes its dataset and its model to a new directory in `store`. The DataFrame must have the recipe's
    columns, as `prepare` would return them; vectors of Spark ML are converted to arrays of floats.

    Args:
        **params: The params by name. `explainParams()` describes each. All but `store`, `validation`, `shapes`,
            `variable_length`, `categories`, `label` and `nullable` are options of `TrainOperator`.

    Raises:
        TrainyardError: A param is unknown.
    """

    store = _build_param("store", "The directory for datasets and models: a URI that driver and executors can reach.")
    validation = _build_param(
        "validation", "The fraction of rows for validation, drawn by `seed`, or a boolean column of them."
    )
    shapes = _build_param("shapes", "The shape of the tensor in each flat array column, by column.")
    variable_length = _build_param("variable_length", "Array columns whose length differs between rows.")
    categories = _build_param(
        "categories", "Columns that become indices, as for ExportOperator: a list, or a dict of options."
    )
    label = _build_param(
        "label", "The label, or a list of labels, if its values become classes, as for ExportOperator."
    )
    nullable = _build_param("nullable", "Labels of heads that a row may be without, as for ExportOperator.")

    def __init__(self, **params: Any) -> None:
        super().__init__()
        fields = {**TrainSpec.model_fields, **TrainOptions.model_fields}
        defaults = {name: field.default for name, field in fields.items() if self.hasParam(name)}
        simple = {name: value for name, value in defaults.items() if isinstance(value, str | float | int)}
        self._setDefault(
            recipe_params={}, shapes={}, variable_length=[], categories=[], label=None, nullable=[], **simple
        )
        for name in params:
            if not self.hasParam(name):
                names = ", ".join(param.name for param in self.params)
                raise TrainyardError(f"{name!r} is not a param of TrainyardEstimator; params are {names}.")
        self._set(**params)

    def _fit(self, dataset: DataFrame) -> TrainyardModel:
        for name in ("recipe", "store"):
            if not self.isDefined(name):
                raise TrainyardError(f"TrainyardEstimator needs {name}=: {self.getParam(name).doc}")
        if (recipe := self.getOrDefault("recipe")).startswith("__main__:"):
            raise TrainyardError(
                f"TrainyardEstimator: recipe={recipe!r} is in a notebook or script, which workers cannot import. Write "
                "it into a module, for example 'recipes:network'."
            )
        run = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:8]}"
        spec = self._build_spec(uris.join(self.getOrDefault("store"), run), run)
        self._export(dataset, spec)
        with EventLog(spec.task_key.directory, spec.task_key.task, "driver") as events:
            supervisor.run(dataset.sparkSession, spec, events)
        return TrainyardModel(model=spec.model)

    def _build_spec(self, directory: str, run: str) -> TrainSpec:
        params = {param.name: self.getOrDefault(param) for param in self.params if self.isDefined(param)}
        fields = {name: params[name] for name in TrainSpec.model_fields if name in params}
        fields |= {
            "task_key": TaskKey(dag_id="estimator", run_id=run, task_id="train", directory=directory),
            "dataset": uris.join(directory, "dataset"),
            "model": uris.join(directory, "model"),
            "options": {name: params[name] for name in TrainOptions.model_fields if name in params},
        }
        try:
            return TrainSpec.model_validate(fields)
        except ValidationError as error:
            clauses = [complaint({**item, "loc": _without_group(item["loc"])}) for item in error.errors()]
            raise TrainyardError(f"TrainyardEstimator: {'; '.join(clauses)}.") from error

    def _export(self, frame: DataFrame, spec: TrainSpec) -> None:
        spark = frame.sparkSession
        assert spec.recipe
        categories, label = _parse_categories(self.getOrDefault("categories")), self.getOrDefault("label")
        labels: list[str] = [label] if isinstance(label, str) else list(label or ())
        nullable: list[str] = self.getOrDefault("nullable")
        rows = self._select_rows(frame, _load_smallest(spec, frame.columns, [*categories, *labels]))
        vocabulary.check_columns(rows.schema, categories, labels)
        shapes, variable_length = self.getOrDefault("shapes"), self.getOrDefault("variable_length")
        columns.build_fields(
            vocabulary.index_schema(rows.schema, [*categories, *labels]),
            WriteOptions(
                spec.dataset,
                splits.SPLIT,
                shapes=tuple(shapes.items()),
                variable_length=tuple(variable_length),
                nullable=tuple(name for name in nullable if name not in labels),
            ),
            variable_length_option="variable_length",
        )
        counts = Observation()
        shuffled = splits.shuffle(rows, spark.sparkContext.defaultParallelism, spec.options.seed, counts=counts)
        options = {
            "splitColumn": splits.SPLIT,
            "splits": "train,validation" if self.isDefined("validation") else "train",
            "shapes": json.dumps(shapes),
            "variableLength": json.dumps(variable_length),
            "nullable": json.dumps(nullable),
        }
        if categories or labels:
            training_rows = rows.where(F.col(splits.SPLIT) == fitting.TRAIN).drop(splits.SPLIT)
            chosen = {"categories": {name: of.model_dump() for name, of in categories.items()}, "label": label}
            state = fitting.fit_values(training_rows, categories, labels, chosen)
            fitted_state.save(spec.dataset, state)
            options["fitted"] = state.reference.model_dump_json()
            shuffled = encoding.encode(shuffled, state.vocabularies, keeps_order=True, nullable=nullable)
        source.save(shuffled, spec.dataset, "append", options)
        validation = self.getOrDefault("validation") if self.isDefined("validation") else None
        asked = {"train": 1 - validation, "validation": validation} if isinstance(validation, float) else {}
        version = manifest.read_current(spec.dataset)
        for warning in split_quality.find_warnings(spec.dataset, version, "", asked, None, counts.get):
            print(f"WARNING: {warning}", flush=True)

    def _select_rows(self, frame: DataFrame, recipe: Recipe) -> DataFrame:
        """Return the recipe's columns of `frame`, and the split of each row."""
        labels = {
            label: recipe.heads_by_name[head] for head, label in recipe.labels.items() if label not in recipe.inputs
        }
        selected = [_get_array(frame, name, "the recipe") for name in recipe.columns if name not in labels]
        selected += [_get_label(frame, name, head) for name, head in labels.items()]
        if self.isDefined("weight_by") and self.getOrDefault("weight_by") not in recipe.columns:
            selected.append(_get_array(frame, self.getOrDefault("weight_by"), "weight_by"))
        validation = self.getOrDefault("validation") if self.isDefined("validation") else None
        if validation is None:
            return frame.select(*selected, F.lit("train").alias(splits.SPLIT))
        if isinstance(validation, str):
            kind = _get_field(frame, validation, "validation").dataType
            if not isinstance(kind, BooleanType):
                raise TrainyardError(
                    f"validation={validation!r} is a column of type {kind.simpleString()}; use a boolean column, which "
                    "is true for the rows to validate on, or a fraction such as 0.1."
                )
            split = F.when(columns.get_column(validation), "validation").otherwise("train")
            return frame.select(*selected, split.alias(splits.SPLIT))
        if not 0 < validation < 1:
            raise TrainyardError(
                f"validation={validation} is not valid; use a fraction between 0 and 1, such as 0.1, or a column."
            )
        fractions = {"train": 1 - validation, "validation": validation}
        return splits.assign(frame.select(*selected), fractions, seed=self.getOrDefault("seed"))


@_add_accessors
class TrainyardModel(Model, DefaultParamsReadable, DefaultParamsWritable):  # type: ignore[misc]
    """Add a model's predictions to a DataFrame.

    Saving it stores the URI of the model artifact only; the artifact stays where it is.

    Args:
        model: The URI of the model artifact.
    """

    model = _build_param("model", "the URI of the model artifact")

    def __init__(self, model: str | None = None) -> None:
        super().__init__()
        self._set(model=model)

    @property
    def artifact(self) -> ModelArtifact:
        """The model artifact: what was trained on what, with the metrics of the best epoch."""
        return model_artifact.read_current(self.getOrDefault("model"))

    def _transform(self, dataset: DataFrame) -> DataFrame:
        inputs = [column.name for column in self.artifact.inputs]
        vectors = [name for name in inputs if isinstance(_get_field(dataset, name, "the model").dataType, VectorUDT)]
        keys = {name: f"{_VECTOR_PREFIX}{name}" if name in vectors else name for name in dataset.columns}
        originals = [columns.get_column(name).alias(key) for name, key in keys.items()]
        arrays = [_get_array(dataset, name, "the model") for name in vectors]
        rows = dataset.select(*originals, *arrays)
        predicted = predict.predict(rows, self.getOrDefault("model"), list(keys.values()))
        restored = [columns.get_column(key).alias(name) for name, key in keys.items()]
        return predicted.select(*restored, *(columns.get_column(name) for name in predicted.columns[len(keys) :]))


def _parse_categories(given: Any) -> dict[str, Category]:
    try:
        return TypeAdapter(Categories).validate_python(given)
    except ValidationError as error:
        raise TrainyardError(f"TrainyardEstimator: categories {complaints(error)}.") from error


def _load_smallest(spec: TrainSpec, columns: Sequence[str], encoded: Sequence[str]) -> Recipe:
    """Return the recipe with the smallest network, for its columns: how many categories there are is not known yet."""
    assert spec.recipe
    sizes = FittedReference(sha256="0", sizes=dict.fromkeys(encoded, 2)) if encoded else None
    recipe = recipes.load(spec.recipe, recipes.add_categories(spec.recipe, spec.recipe_params, sizes))
    return recipe.find_masks(columns)


def _without_group(path: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return the path of a param from that of its field in the spec."""
    return path[1:] if path[:1] == ("options",) else path


def _get_field(frame: DataFrame, name: str, option: str) -> StructField:
    if name not in frame.columns:
        raise columns.missing_column_error(name, option, frame.columns)
    return frame.schema[name]


def _get_array(frame: DataFrame, name: str, option: str) -> Column:
    """Return a column as a dataset can store it: vectors as arrays of floats."""
    column = columns.get_column(name)
    if not isinstance(_get_field(frame, name, option).dataType, VectorUDT):
        return column
    missing = columns.raise_error(
        F.lit(f"column {name!r} has a row without a vector; drop it, for example with dropna().")
    )
    return F.when(column.isNull(), missing).otherwise(vector_to_array(column, "float32")).alias(name)


def _get_label(frame: DataFrame, name: str, head: Head) -> Column:
    """Return the label; classes that are floats, as Spark ML's indexers return them, become integers."""
    label = columns.get_column(name)
    are_classes = head.classes is not None or is_any(head.loss, OF_CLASSES)
    if not are_classes or not isinstance(_get_field(frame, name, "the recipe").dataType, DoubleType | FloatType):
        return label
    integer = label.try_cast("bigint")
    wrong = F.concat(
        F.lit(f"column {name!r} is the number of a class but is not an integer: "), label.cast("string"),
        F.lit(". Correct the label, or drop the row."),
    )  # fmt: skip
    return F.when(label.isNull() | (label == integer), integer).otherwise(columns.raise_error(wrong)).alias(name)
