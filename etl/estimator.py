"""Training and prediction as Spark ML's Estimator and Model, in the session at hand: a notebook without Airflow.

>>> estimator = TrainyardEstimator(recipe="digits.recipe:convnet", store="hdfs:///runs", workers=2, epochs=5)
>>> estimator.fit(frame).transform(frame)  # the columns of `frame`, and those of the recipe's `predict`

This is the one room that both exports and trains: the steps of a DAG, one after the other.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import ValidationError
from pyspark.ml import Estimator, Model
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import VectorUDT
from pyspark.ml.param import Param, Params
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DoubleType, FloatType, StructField

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.etl.datasource import columns, source
from trainyard.etl.jobs import predict, splits
from trainyard.schemas import model_artifact as bundles
from trainyard.schemas.document import complaints
from trainyard.schemas.events import EventLog
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainOptions, TrainSpec
from trainyard.trainer.group import supervisor
from trainyard.trainer.model import recipe as recipes
from trainyard.trainer.model.recipe import Recipe

P = TypeVar("P", bound=type)
_KEPT = "__vector_"


def _param(name: str, doc: str) -> Any:
    return Param(Params._dummy(), name, doc)


def _with_accessors(cls: P) -> P:
    """Gives a class what Spark ML's own have: for its param `batch_size`, `getBatchSize` and `setBatchSize`."""
    for name in [name for name, value in vars(cls).items() if isinstance(value, Param)]:
        spelled = name.title().replace("_", "")
        setattr(cls, f"get{spelled}", _getter(name))
        setattr(cls, f"set{spelled}", _setter(name))
    return cls


def _getter(name: str) -> Callable[[Any], Any]:
    return lambda self: self.getOrDefault(name)


def _setter(name: str) -> Callable[[Any, Any], Any]:
    return lambda self, value: self._set(**{name: value})


@_with_accessors
class TrainyardEstimator(Estimator, DefaultParamsReadable, DefaultParamsWritable):  # type: ignore[misc]
    """Trains a recipe on a DataFrame. What it writes lies in a directory of its own in `store` for each fit.

    The frame has the recipe's columns, as `prepare` would return them; a vector of Spark ML counts as an array of
    floats. Params are given by keyword, or set; those named as the fields of `TrainOptions` are these.
    """

    recipe = _param("recipe", "what is trained: `module:name`, importable here and where the ranks run")
    recipe_params = _param("recipe_params", "its keyword arguments")
    store = _param("store", "where batches and models go: a directory that driver and executors reach, as a URI")
    workers = _param("workers", "ranks; each needs a slot, all at once")
    strategy = _param("strategy", "how ranks agree on one model: a name, or a dict of a name and options")
    max_restarts = _param(
        "max_restarts", "times that the gang starts again after it lost a rank, without progress in between"
    )
    validation = _param("validation", "the fraction of rows to validate on, or a boolean column that is true for them")
    shapes = _param("shapes", "the shape of the tensor in each flat array column, by its name")
    variable_length = _param("variable_length", "array columns that keep the length of each row")
    bucket_by = _param("bucket_by", "one of these; batches then hold rows of about one length")
    balance = _param("balance", "whether each value of the recipe's label is drawn equally often")
    weight_by = _param("weight_by", "the column of weights in proportion to which rows are drawn")
    epochs = _param("epochs", "passes over the rows that are trained on")
    batch_size = _param("batch_size", "rows over all ranks before one update")
    micro_batches = _param("micro_batches", "parts of a batch, for memory")
    seed = _param("seed", "of the split, of the order of rows, and of the model's first weights")
    precision = _param("precision", "of forward and backward pass: float32, bfloat16 or float16")
    clip_norm = _param("clip_norm", "largest norm of the gradient")
    early_stopping = _param("early_stopping", "epochs without improvement of `monitor` after which training ends")
    monitor = _param("monitor", "a validation metric, or `loss`, that chooses the best epoch")
    monitor_mode = _param("monitor_mode", "which way `monitor` is better: min or max")
    compile = _param("compile", "whether the model goes through torch.compile")

    def __init__(self, **params: Any) -> None:
        super().__init__()
        known = {**TrainSpec.model_fields, **TrainOptions.model_fields}
        plain = {name: field.default for name, field in known.items() if self.hasParam(name)}
        given = {name: value for name, value in plain.items() if isinstance(value, str | float | int)}
        self._setDefault(recipe_params={}, shapes={}, variable_length=[], **given)
        for name in params:
            if not self.hasParam(name):
                names = ", ".join(param.name for param in self.params)
                raise TrainyardError(f"TrainyardEstimator has no param {name!r}; it has {names}.")
        self._set(**params)

    def _fit(self, dataset: DataFrame) -> TrainyardModel:
        for name in ("recipe", "store"):
            if not self.isDefined(name):
                raise TrainyardError(f"TrainyardEstimator needs {name}=: {self.getParam(name).doc}.")
        run = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:8]}"
        spec = self._spec(storage.join(self.getOrDefault("store"), run), run)
        self._export(dataset, spec)
        events = EventLog(spec.task_key.directory, spec.task_key.task, "driver")
        try:
            supervisor.run(dataset.sparkSession, spec, events)
        finally:
            events.flush()
        return TrainyardModel(model=spec.model)

    def _spec(self, directory: str, run: str) -> TrainSpec:
        given = {param.name: self.getOrDefault(param) for param in self.params if self.isDefined(param)}
        options = {name: given[name] for name in TrainOptions.model_fields if name in given}
        fields = {name: given[name] for name in TrainSpec.model_fields if name in given}
        place = TaskKey(dag_id="estimator", run_id=run, task_id="train", directory=directory)
        where = {"dataset": storage.join(directory, "dataset"), "model": storage.join(directory, "model")}
        try:
            return TrainSpec.model_validate({**fields, **where, "task_key": place, "options": options})
        except ValidationError as error:
            raise TrainyardError(f"TrainyardEstimator: {complaints(error)}.") from error

    def _export(self, frame: DataFrame, spec: TrainSpec) -> None:
        spark = frame.sparkSession
        source.register(spark)
        parted = self._parted(frame, recipes.load(spec.recipe, spec.recipe_params))
        shuffled = splits.shuffle(parted, spark.sparkContext.defaultParallelism, spec.options.seed)
        declared = ["train", "validation"] if self.isDefined("validation") else ["train"]
        options = {
            "splitColumn": splits.SPLIT,
            "splits": ",".join(declared),
            "shapes": json.dumps(self.getOrDefault("shapes")),
            "variableLength": ",".join(self.getOrDefault("variable_length")),
        }
        source.save(shuffled, spec.dataset, "append", options)

    def _parted(self, frame: DataFrame, recipe: Recipe) -> DataFrame:
        """The recipe's columns of `frame`, and the split of each row."""
        rows = [_as_array(frame, name, "the recipe") for name in recipe.inputs]
        if recipe.label:
            rows.append(_label(frame, recipe.label, recipe.classes))
        if self.isDefined("weight_by") and self.getOrDefault("weight_by") not in (*recipe.inputs, recipe.label):
            rows.append(_as_array(frame, self.getOrDefault("weight_by"), "weight_by"))
        held_out = self.getOrDefault("validation") if self.isDefined("validation") else None
        if held_out is None:
            return frame.select(*rows, F.lit("train").alias(splits.SPLIT))
        if isinstance(held_out, str):
            kind = _field(frame, held_out, "validation").dataType
            if not isinstance(kind, BooleanType):
                raise TrainyardError(
                    f"validation={held_out!r} is a column of type {kind.simpleString()}; name a boolean one, which is "
                    "true for the rows to validate on, or give a fraction such as 0.1."
                )
            split = F.when(splits.column(held_out), "validation").otherwise("train")
            return frame.select(*rows, split.alias(splits.SPLIT))
        if not 0 < held_out < 1:
            raise TrainyardError(f"validation={held_out} is no fraction between 0 and 1, such as 0.1, nor a column.")
        fractions = {"train": 1 - held_out, "validation": held_out}
        return splits.assign(frame.select(*rows), fractions, seed=self.getOrDefault("seed"))


@_with_accessors
class TrainyardModel(Model, DefaultParamsReadable, DefaultParamsWritable):  # type: ignore[misc]
    """Adds the columns of a bundle's predictions. Saved it is the bundle's URI: the bundle stays in its store."""

    model = _param("model", "the URI of a model artifact")

    def __init__(self, model: str | None = None) -> None:
        super().__init__()
        self._set(model=model)

    @property
    def artifact(self) -> ModelArtifact:
        """What was trained on what, with the metrics of the best epoch."""
        return bundles.read_current(self.getOrDefault("model"))

    def _transform(self, dataset: DataFrame) -> DataFrame:
        inputs = [column.name for column in self.artifact.inputs]
        vectors = [name for name in inputs if isinstance(_field(dataset, name, "the model").dataType, VectorUDT)]
        kept = {name: f"{_KEPT}{name}" if name in vectors else name for name in dataset.columns}
        rows = [splits.column(name).alias(kept[name]) for name in dataset.columns]
        arrays = [_as_array(dataset, name, "the model") for name in vectors]
        predicted = predict.predict(dataset.select(*rows, *arrays), self.getOrDefault("model"), list(kept.values()))
        added = predicted.columns[len(kept) :]
        own = [splits.column(name).alias(told) for told, name in kept.items()]
        return predicted.select(*own, *(splits.column(name) for name in added))


def _field(frame: DataFrame, name: str, option: str) -> StructField:
    if name not in frame.columns:
        raise columns.missing(name, option, frame.columns)
    return frame.schema[name]


def _as_array(frame: DataFrame, name: str, option: str) -> Column:
    """A column as a batch can hold it: a vector as an array of floats."""
    if isinstance(_field(frame, name, option).dataType, VectorUDT):
        return vector_to_array(splits.column(name), "float32").alias(name)
    return splits.column(name)


def _label(frame: DataFrame, name: str, classes: int | None) -> Column:
    """The label; a class that is a fraction, as Spark ML's indexers number them, becomes an integer."""
    found = splits.column(name)
    if classes is None or not isinstance(_field(frame, name, "the recipe").dataType, DoubleType | FloatType):
        return found
    whole = found.cast("bigint")
    wrong = F.concat(F.lit(f"column {name!r} numbers classes, so that it must be whole: "), found.cast("string"))
    return F.when(found.isNull() | (found == whole), whole).otherwise(F.raise_error(wrong)).alias(name)
