"""What each job returns: the result of its task in XCom, and a part of its run record."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Self

from pydantic import AfterValidator
from pydantic_core import to_jsonable_python

from trainyard.files import uris
from trainyard.schemas.datasets.manifest import DatasetManifest
from trainyard.schemas.document import Part
from trainyard.schemas.evaluation import Difference, Evaluation, Interval
from trainyard.schemas.references import Reference
from trainyard.schemas.types import ApplicationId, Digest, SplitName
from trainyard.schemas.version_suffix import add_version


def _or_none(value: int | float | None) -> int | float | None:
    return None if value is None or not math.isfinite(value) else value


Numbers = dict[str, Annotated[int | float | None, AfterValidator(_or_none)]]
"""Metric -> value, None where it has none, or NaN."""


class Result(Part):
    """What a job returns. The warnings are a sentence each; a job that has none leaves them out."""

    warnings: tuple[str, ...] = ()

    def to_xcom(self) -> dict[str, Any]:
        """Return the fields that the job has set, as JSON; numbers that JSON does not have, such as NaN, are None."""
        xcom: dict[str, Any] = to_jsonable_python(self.model_dump(exclude_unset=True), inf_nan_mode="null")
        return xcom

    @property
    def evaluations_by_name(self) -> dict[str, EvaluationResult]:
        """The evaluations in the result, by the names of their models; "" for the only one."""
        return {}

    def references(self) -> Iterator[Reference]:
        """Yield the versions of datasets and models that the result names."""
        yield from ()


class DatasetResult(Result):
    """The result of an export.

    Attributes:
        warnings: What is not as expected, columns that drifted beyond `warn`, splits without rows, files that Spark
            does not read and the like, a sentence each.
    """

    uri: str
    """The URI of the dataset."""
    content_hash: Digest
    """The sha256 of columns and shards: the same for the same rows in as many shards."""
    version: int
    """The version that was written; of a skipped export, the one that exists."""
    rows: int
    """The number of rows."""
    splits: dict[str, int]
    """The number of rows of each split."""
    partitions: int
    """The number of partitions."""
    shards: int
    """The number of files."""
    record_batches: int
    """The number of record batches."""
    bytes: int
    """The size of the shards."""
    source_versions: dict[str, str] = {}
    """The version of each source that has versions, by its name; a single one is named `source`."""
    unseen: dict[str, float] = {}
    """The fraction of the rows of this write, by column of `categories`, that are null or have a value without an index
    of its own."""
    reused: bool = False
    """True if the export was skipped; otherwise the key is missing."""

    @classmethod
    def from_manifest(cls, uri: str, manifest: DatasetManifest, partition: str | None) -> Self:
        """Return the counts of the dataset at `uri`, and what the write of a partition, or of all, said of itself."""
        provenance = manifest.partitions[partition or ""].provenance
        shards = [shard for split in manifest.splits.values() for shard in split.shards]
        return cls(
            uri=uri, content_hash=manifest.content_hash, version=manifest.number, rows=manifest.rows,
            splits={name: split.rows for name, split in manifest.splits.items()}, partitions=len(manifest.partitions),
            shards=len(shards), record_batches=sum(len(shard.lengths) for shard in shards),
            bytes=sum(shard.bytes for shard in shards), warnings=provenance.warnings,
            **({"source_versions": versions} if (versions := provenance.source_versions) else {}),
        )  # fmt: skip

    def references(self) -> Iterator[Reference]:
        """Yield the version of the dataset."""
        yield Reference(self.uri, self.version)


class EpochModel(Part):
    """The model of one epoch."""

    uri: str
    weights_sha256: Digest


class ModelResult(Result):
    """The result of a training.

    Attributes:
        warnings: What went wrong without ending the training, a sentence each.
    """

    uri: str
    """The URI of the model."""
    weights_sha256: Digest
    """The sha256 of the weights."""
    dataset_hash: Digest
    """The content hash of the dataset."""
    dataset_version: int
    """The version of the dataset. Pass it to `dataset_since` of the next training."""
    metrics: Numbers
    """The metrics of the best epoch."""
    epochs: int
    """The number of epochs."""
    best_epoch: int
    """The number of the best epoch, from 1."""
    epoch_models: tuple[EpochModel, ...]
    """The `uri` and `weights_sha256` of the models of all epochs, with `epoch_models=True`; also under an XCom key of
    this name."""
    stopped_early: bool
    """Whether `early_stopping` ended the training."""
    workers: int
    """The number of workers at the end."""
    optimizers: tuple[str, ...] = ()
    """The optimizers and schedules, such as `SGD(lr=0.1)`."""
    parameters: int | None = None
    """The number of the model's parameters."""
    rows: int | None = None
    """The rows of an epoch."""
    software: str = ""
    """The versions of Python and torch of rank 0, such as `Python 3.12.3, torch 2.15.0+cu130`."""
    device: str = ""
    """What rank 0 trained on: the name of its GPU, or `CPU`."""
    bytes_sent: int
    """The bytes that rank 0 sent to the other workers."""
    bottleneck: str
    """What takes the largest share of the time, what would help, and what takes the next largest."""
    limited_by: str = ""
    """The largest share alone."""
    advice: str = ""
    """What would help alone; empty if the share cost less than 10 s."""
    formats: dict[str, str]
    """The URI of the model in each of `formats`."""
    registered_models: tuple[str, ...] = ()
    """The versions that MLflow has registered, for example `models:/digits/3`."""
    seconds: dict[str, float]
    """The seconds in each phase, mean over workers."""
    gpu_utilization: float | None = None
    """Mean utilization of the GPU of rank 0, 0 to 1; only with `nvidia-ml-py`."""
    gpu_memory_gib: float | None = None
    """Maximum memory in use on this GPU; only with `nvidia-ml-py`."""
    restarts: int
    """How often the group restarted."""

    def references(self) -> Iterator[Reference]:
        """Yield the model and those of the epochs; `dataset_version` is of the dataset in the spec."""
        yield Reference(self.uri, self.weights_sha256)
        yield from (Reference(model.uri, model.weights_sha256) for model in self.epoch_models)


class ScriptResult(Result):
    """The result of a script."""

    workers: int
    """The number of workers at the end."""
    restarts: int
    """How often the group restarted."""
    metrics: Numbers = {}
    """The last value of each metric that rank 0 has reported by `report_metrics`; otherwise the key is missing."""


class BaselineResult(Part):
    """The metrics of a baseline, and by how much the model exceeds them."""

    uri: str
    weights_sha256: Digest
    metrics: Numbers
    intervals: dict[str, Interval]
    differences: dict[str, Difference]


class EvaluationResult(Result):
    """The result of an evaluation. Metrics that are no numbers are in its document alone: they may be large.

    Attributes:
        warnings: A sentence if the model is worse than always giving the most frequent class, or the mean label.
    """

    uri: str
    """The URI of the model."""
    weights_sha256: Digest
    """The sha256 of the weights."""
    metrics: Numbers
    """The metrics that are numbers."""
    intervals: dict[str, Interval]
    """The confidence interval of each metric."""
    dataset: str
    """The URI of the dataset."""
    dataset_hash: Digest
    """The content hash of the dataset."""
    dataset_version: int
    """The version of the dataset."""
    split: SplitName
    """The split."""
    rows: int
    """The number of rows."""
    confidence: float
    """The confidence of the intervals."""
    query: str | None
    """The column whose rows with one value were ranked together, if there is one."""
    application: ApplicationId
    """The id of the Spark application."""
    baselines: tuple[BaselineResult, ...]
    """For each baseline its `uri`, `metrics`, `intervals` and `differences`."""
    evaluation: str
    """The URI of the evaluation document, with confusion matrices, slices and curves."""

    @classmethod
    def from_evaluation(cls, evaluation: Evaluation) -> Self:
        """Return what an XCom has of an evaluation: a confusion matrix of 1,000 classes has 8 MB."""
        model = evaluation.model
        baselines = [
            BaselineResult(
                uri=other.uri, weights_sha256=other.weights_sha256, metrics=other.numbers, intervals=other.intervals,
                differences=other.differences,
            )
            for other in evaluation.baselines
        ]  # fmt: skip
        return cls(
            uri=model.uri, weights_sha256=model.weights_sha256, metrics=model.numbers, intervals=model.intervals,
            dataset=evaluation.dataset, dataset_hash=evaluation.dataset_hash,
            dataset_version=evaluation.dataset_version, split=evaluation.split, rows=evaluation.rows,
            confidence=evaluation.confidence, query=evaluation.query, warnings=evaluation.warnings,
            application=evaluation.application, baselines=tuple(baselines), evaluation=evaluation.uri,
        )  # fmt: skip

    @property
    def evaluations_by_name(self) -> dict[str, EvaluationResult]:
        """This evaluation alone, without a name."""
        return {"": self}

    def references(self) -> Iterator[Reference]:
        """Yield the models, and the version of the dataset."""
        yield Reference(self.dataset, self.dataset_version)
        yield Reference(self.uri, self.weights_sha256)
        yield from (Reference(other.uri, other.weights_sha256) for other in self.baselines)


class EvaluationsResult(Result):
    """The result of an evaluation of several models, with `models=`.

    Attributes:
        warnings: The warnings of all evaluations, each after the name of its model.
    """

    evaluations: dict[str, EvaluationResult]
    """For each model, by its name below the storage root, what the evaluation of this model alone returns. Two versions
    of one model are named `NAME@VERSION`."""

    @classmethod
    def from_evaluations(cls, root: str, evaluations: Sequence[EvaluationResult]) -> Self:
        """Return the evaluations by the names of their models below the storage root."""
        versions = Counter(result.uri for result in evaluations)
        by_name = {}
        for result in evaluations:
            name = uris.shorten(root, result.uri)
            by_name[add_version(name, result.weights_sha256) if versions[result.uri] > 1 else name] = result
        warnings = tuple(f"{name}: {text}" for name, result in by_name.items() for text in result.warnings)
        return cls(evaluations=by_name, warnings=warnings)

    @property
    def evaluations_by_name(self) -> dict[str, EvaluationResult]:
        """The evaluation of each model."""
        return self.evaluations

    def references(self) -> Iterator[Reference]:
        """Yield the models, and the version of the dataset."""
        for result in self.evaluations.values():
            yield from result.references()


class PredictionsResult(Result):
    """The result of a prediction.

    Attributes:
        warnings: What Spark does not read of the source, and that there are no predictions, a sentence each.
    """

    uri: str
    """Where the predictions are."""
    model: str
    """The URI of the model."""
    weights_sha256: Digest
    """The sha256 of its weights."""
    rows: int
    """The number of rows that were written."""
    columns: tuple[str, ...]
    """The columns of the predictions."""
    version: int | None = None
    """The version of the dataset, with `output_format="trainyard"`."""
    partitions: tuple[str, ...] = ()
    """The partitions that were predicted, with `partition_by`."""
    unchanged: int | None = None
    """The number of partitions that were left as they are, with `partition_by`."""
    stale: tuple[str, ...] = ()
    """The partitions in the output that have no rows now, with `partition_by`, if there are any."""

    def references(self) -> Iterator[Reference]:
        """Yield the model, and the version of the dataset if the predictions are one."""
        yield Reference(self.model, self.weights_sha256)
        yield Reference(self.uri, self.version)


class EnsembleResult(Result):
    """The result of an EnsembleOperator, which runs no job."""

    uri: str
    """The URI of the ensemble."""
    weights_sha256: Digest
    """The sha256 of the versions of its members, and of how they are combined."""
    members: tuple[str, ...]
    """The members, each with its version."""
    by: str
    """How their outputs are combined: `mean` or `vote`."""

    def references(self) -> Iterator[Reference]:
        """Yield the ensemble; it has copies of its members."""
        yield Reference(self.uri, self.weights_sha256)


class PromotionResult(Result):
    """The result of a PromoteOperator, which runs no job."""

    uri: str
    """The URI of the champion."""
    promoted: bool
    """Whether the model became the champion."""
    why: str
    """The reason, also if it did not."""
    candidate: str
    """The model that was evaluated, with its version; of several, the best."""
    metrics: Numbers
    """Its metrics."""
    weights_sha256: Digest | None = None
    """The sha256 of the champion's weights; the key is missing if there is no champion."""
    replaced: Digest | None = None
    """The sha256 of the champion's weights before; the key is missing if there was none."""

    def references(self) -> Iterator[Reference]:
        """Yield the champion."""
        yield Reference(self.uri, self.weights_sha256)


WITHOUT_JOB: dict[str, type[Result]] = {"ensemble": EnsembleResult, "promote": PromotionResult}
"""What tasks return that run no application: kind of task -> result."""
