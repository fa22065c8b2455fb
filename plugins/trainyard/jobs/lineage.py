"""Report what a job reads and writes to OpenLineage, and name the task as the parent of its Spark application.

`describe` reads the documents of inputs and outputs in the process of the task, because the OpenLineage provider forks
one of its own, in which clients of a storage may hang. There `to_openlineage` converts what was read. The provider is
imported in functions, so Trainyard works without it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trainyard.compat import conf as airflow_conf
from trainyard.files import hadoop_conf
from trainyard.schemas import model_artifact
from trainyard.schemas.datasets import manifest as manifests
from trainyard.schemas.datasets.manifest import Column, Split, Statistics
from trainyard.schemas.evaluation import Evaluation
from trainyard.schemas.results import DatasetResult, ModelResult, PredictionsResult, Result
from trainyard.schemas.specs.evaluate import EvaluateSpec
from trainyard.schemas.specs.export import ExportSpec, FeaturizeSpec
from trainyard.schemas.specs.job import JobSpec
from trainyard.schemas.specs.predict import PredictSpec
from trainyard.schemas.specs.source import ReadsSources
from trainyard.schemas.specs.train import TrainSpec
from trainyard.schemas.validation.secrets import find_secrets
from trainyard.schemas.version_suffix import add_version, split_version

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

log = logging.getLogger(__name__)

OBJECT_STORES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs", "wasbs": "wasbs"}
"""Schemes whose names are keys without a leading slash, and the scheme that OpenLineage has for them."""
_WITH_SECRETS = (".auth.", ".headers.")
"""Parts of properties of a transport that carry its credentials."""


@dataclass(frozen=True)
class Summary:
    """Counts of rows, bytes and files, and the statistics of columns by name."""

    rows: int
    bytes: int | None = None
    files: int | None = None
    statistics: Mapping[str, Statistics] = field(default_factory=dict)


@dataclass(frozen=True)
class Item:
    """Something that a job reads or writes.

    Attributes:
        uri: Where it is.
        kind: Its OpenLineage dataset type, "" for none.
        version: Its version: the number of a dataset, the sha256 of a model's weights.
        fields: The types of its columns by name, or of a model's inputs and label; None for a type that is not known.
        layer: What commits its versions, "" for plain files.
        format: The format of its files.
        content: What the job reads of it, or what an output consists of.
        written: What the job has written of it.
    """

    uri: str
    kind: str = ""
    version: str = ""
    fields: Mapping[str, str | None] = field(default_factory=dict)
    layer: str = ""
    format: str = ""
    content: Summary | None = None
    written: Summary | None = None


@dataclass(frozen=True)
class Lineage:
    """The inputs and outputs of a job."""

    inputs: tuple[Item, ...] = ()
    outputs: tuple[Item, ...] = ()


def describe(spec: JobSpec, result: Result | None = None) -> Lineage:
    """Return what a job reads and writes.

    Versions, columns and statistics are those of the result; before there is one, inputs and outputs are names alone.
    Tables, and sources without a path, are left out: OpenLineage's Spark integration names them.

    Args:
        spec: The spec of the job.
        result: What the job returned; None before it has ended, and after a failure.
    """
    match spec, result:
        case ExportSpec(), DatasetResult() | None:
            inputs = _describe_sources(spec)
            if isinstance(spec, FeaturizeSpec):
                inputs += (_describe_model(spec.model, bool(result)),)
            return Lineage(inputs, (_describe_written(spec.dataset, result),))
        case TrainSpec(), ModelResult() | None:
            return _describe_training(spec, result)
        case EvaluateSpec(), _:
            evaluations = [*result.evaluations_by_name.values()] if result else []
            models = [_describe_model(uri, bool(result)) for uri in (*spec.evaluated, *spec.baselines)]
            version = next((one.dataset_version for one in evaluations), None)
            datasets = [_describe_read(spec.dataset, version, (spec.split,))] if spec.dataset else []
            return Lineage(
                (*datasets, *models), tuple(Item(one.evaluation, "FILE", format="json") for one in evaluations)
            )
        case PredictSpec(), PredictionsResult() | None:
            inputs = (*_describe_sources(spec), _describe_model(spec.model, bool(result)))
            return Lineage(inputs, _describe_predictions(spec, result))
    return Lineage()


def describe_promotion(evaluation: Evaluation, champion: str) -> Lineage:
    """Return the lineage of a promotion: the evaluation and its model are read, the champion is written."""
    inputs = (
        Item(evaluation.uri, "FILE", format="json"),
        _describe_model(add_version(evaluation.model.uri, evaluation.model.weights_sha256), True),
    )
    return Lineage(inputs, (_describe_model(champion, True),))


def describe_ensemble(members: Sequence[str], uri: str) -> Lineage:
    """Return the lineage of an ensemble: its members are read, in their versions, and it is written."""
    return Lineage(tuple(_describe_model(name, True) for name in members), (_describe_model(uri, True),))


def identify(uri: str, default_fs: str = "") -> tuple[str, str]:
    """Return the namespace and the name that OpenLineage has for a URI.

    Args:
        uri: A URI or an absolute path.
        default_fs: Hadoop's `fs.defaultFS`, for a URI of HDFS without a host.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return "file", _strip(uri)
    authority, _, path = rest.partition("/")
    if scheme in ("file", "local"):
        return "file", _strip(f"/{path}")
    if scheme in OBJECT_STORES:
        return f"{OBJECT_STORES[scheme]}://{authority}", path.rstrip("/") or "/"
    if not authority and default_fs.startswith(f"{scheme}://"):
        return default_fs.rstrip("/"), _strip(f"/{path}")
    return f"{scheme}://{authority}", _strip(f"/{path}")


def is_enabled() -> bool:
    """Return whether the OpenLineage provider is installed and emits events."""
    try:
        from airflow.providers.openlineage import conf
    except ImportError:
        return False
    return not conf.is_disabled()


def keep(make: Callable[[], Lineage]) -> Lineage | None:
    """Return the lineage of a task that has succeeded; None without OpenLineage. An error is logged, not raised."""
    try:
        return make() if is_enabled() else None
    except Exception as error:  # a job does not depend on its lineage
        log.warning("OpenLineage gets no versions of inputs and outputs: %s", error)
        return None


def to_openlineage(lineage: Lineage) -> OperatorLineage:
    """Convert a lineage to the value that the OpenLineage provider expects of an operator."""
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset

    default_fs = hadoop_conf.read_site("core-site.xml").get("fs.defaultFS", "")
    inputs = [
        InputDataset(*identify(item.uri, default_fs), facets=_facets(item, default_fs), inputFacets=_input_facets(item))
        for item in lineage.inputs
    ]
    outputs = [
        OutputDataset(
            *identify(item.uri, default_fs), facets=_facets(item, default_fs) | _quality_facets(item),
            outputFacets=_output_facets(item),
        )
        for item in lineage.outputs
    ]  # fmt: skip
    return OperatorLineage(inputs=inputs, outputs=outputs)


def inject_into_spark(conf: dict[str, str] | None, context: Context) -> dict[str, str] | None:
    """Return a Spark configuration with the task as the application's parent, as SparkSubmitOperator has it.

    Airflow's settings `spark_inject_parent_job_info` and `spark_inject_transport_info` in section `[openlineage]`
    switch it on. Properties that are there already are not changed. Credentials of a transport are left out, because
    YARN shows an application's configuration. An error is logged, not raised.

    Args:
        conf: The user's configuration.
        context: The context of the task.
    """
    result = dict(conf or {})
    try:
        parent, transport = (
            airflow_conf.getboolean("openlineage", f"spark_inject_{name}_info", fallback=False)
            for name in ("parent_job", "transport")
        )
        if not (parent or transport):
            return conf
        from airflow.providers.common.compat.openlineage.utils import spark

        if parent:
            result |= spark.inject_parent_job_information_into_spark_properties({**result}, context)
        if transport:
            added = spark.inject_transport_information_into_spark_properties({**result}, context)
            result = {name: value for name, value in added.items() if name in result or _is_public(name, value)}
            if left_out := sorted(added.keys() - result.keys()):
                log.warning(
                    "%s: left out, because others can read an application's configuration. Write it into the "
                    "spark-defaults.conf of the nodes.", ", ".join(left_out),
                )  # fmt: skip
    except Exception as error:  # a job does not depend on its lineage
        log.warning("OpenLineage properties cannot be added to the Spark configuration: %s", error)
    return result


def _is_public(name: str, value: str) -> bool:
    return not any(part in name for part in _WITH_SECRETS) and not find_secrets({name: value})


def _describe_sources(spec: ReadsSources) -> tuple[Item, ...]:
    return tuple(Item(each.path, format=each.format) for each in spec.all_sources.values() if each.path)


def _describe_training(spec: TrainSpec, result: ModelResult | None) -> Lineage:
    artifact = model_artifact.read_current(spec.model) if result and model_artifact.exists(spec.model) else None
    trained_on = {mixed.dataset: mixed.dataset_version for mixed in artifact.mix} if artifact else {}
    splits = None if spec.options.fold else ("train", "validation")
    since = model_artifact.find_since(spec.dataset_since, spec.dataset) if result else None
    dataset = _describe_read(spec.dataset, result.dataset_version if result else None, splits, since)
    mix = [_describe_read(mixed.dataset, trained_on.get(mixed.dataset), ("train",)) for mixed in spec.mix]
    started = [_describe_model(spec.start_from, bool(result))] if spec.start_from else []
    return Lineage((dataset, *mix, *started), (_describe_model(spec.model, bool(result)),))


def _describe_predictions(spec: PredictSpec, result: PredictionsResult | None) -> tuple[Item, ...]:
    if spec.output_format == "table":
        return ()
    if spec.output_format == "trainyard":
        return (_describe_written(spec.output, result),)
    item = Item(spec.output, format=spec.output_format)
    if not result:
        return (item,)
    return (replace(item, fields=dict.fromkeys(result.columns), written=Summary(result.rows)),)


def _describe_model(name: str, known: bool) -> Item:
    """Return a model, the newest or the version that its name ends with, with version and columns once known."""
    item = Item(split_version(name)[0], kind="MODEL", layer="trainyard", format="safetensors")
    if not (known and model_artifact.exists(name)):
        return item
    _, artifact = model_artifact.find(name)
    columns = (*artifact.inputs, *artifact.labels.values())
    return replace(item, version=artifact.weights_sha256, fields=_describe_fields(columns))


def _describe_read(
    uri: str, version: int | None, splits: Sequence[str] | None = None, since: int | None = None
) -> Item:
    """Return a dataset that is read, with what the splits have once the version is known; by default all splits."""
    item = Item(uri, layer="trainyard", format="arrow")
    if version is None:
        return item
    manifest = manifests.read_version(uri, version, since)
    used = [split for name, split in manifest.splits.items() if splits is None or name in splits]
    return replace(item, version=str(version), fields=_describe_fields(manifest.columns), content=_summarize(used))


def _describe_written(uri: str, result: DatasetResult | PredictionsResult | None) -> Item:
    """Return a dataset that is written, with its version and what was added to it once they are known."""
    version = result.version if result else None
    item = _describe_read(uri, version)
    if version is None or (isinstance(result, DatasetResult) and result.reused):
        return item
    return replace(item, written=_summarize(manifests.read_version(uri, version, version - 1).splits.values()))


def _describe_fields(columns: Iterable[Column]) -> dict[str, str | None]:
    return {column.name: describe_type(column) for column in columns}


def _summarize(splits: Iterable[Split]) -> Summary:
    used = list(splits)
    shards = [shard for split in used for shard in split.shards]
    columns = dict.fromkeys(name for split in used for name in split.statistics)
    return Summary(
        rows=sum(split.rows for split in used), bytes=sum(shard.bytes for shard in shards), files=len(shards),
        statistics={name: _merge([s.statistics[name] for s in used if name in s.statistics]) for name in columns},
    )  # fmt: skip


def _merge(parts: Sequence[Statistics]) -> Statistics:
    """Return count, nulls, distinct values and, of a scalar, minimum and maximum of several splits together."""
    scalar = all(len(part.min) <= 1 for part in parts)
    values = dict.fromkeys((value for part in parts for value in part.values or ()), 0)
    return Statistics(
        count=sum(part.count for part in parts), nulls=sum(part.nulls for part in parts),
        min=tuple(sorted(part.min[0] for part in parts if part.min)[:1]) if scalar else (),
        max=tuple(sorted(part.max[0] for part in parts if part.max)[-1:]) if scalar else (),
        values=values if all(part.values is not None for part in parts) else None,
    )  # fmt: skip


def _facets(item: Item, default_fs: str) -> dict[str, Any]:
    from openlineage.client import facet_v2 as facets

    namespace, _ = identify(item.uri, default_fs)
    found: dict[str, Any] = {
        "dataSource": facets.datasource_dataset.DatasourceDatasetFacet(name=namespace, uri=namespace)
    }
    if item.layer:
        found["storage"] = facets.storage_dataset.StorageDatasetFacet(storageLayer=item.layer, fileFormat=item.format)
    if item.kind:
        found["datasetType"] = facets.dataset_type_dataset.DatasetTypeDatasetFacet(datasetType=item.kind)
    if item.version:
        found["version"] = facets.dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=item.version)
    if item.fields:
        schema = facets.schema_dataset
        found["schema"] = schema.SchemaDatasetFacet(
            fields=[schema.SchemaDatasetFacetFields(name=name, type=type) for name, type in item.fields.items()]
        )
    return found


def _input_facets(item: Item) -> dict[str, Any]:
    from openlineage.client import facet_v2 as facets

    if item.content is None:
        return {}
    counts = item.content
    metrics = facets.data_quality_metrics_input_dataset
    statistics = facets.input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
        rowCount=counts.rows, size=counts.bytes, fileCount=counts.files
    )
    quality = metrics.DataQualityMetricsInputDatasetFacet(
        columnMetrics=_column_metrics(metrics.ColumnMetrics, counts), rowCount=counts.rows, bytes=counts.bytes,
        fileCount=counts.files,
    )  # fmt: skip
    return {"inputStatistics": statistics, "dataQualityMetrics": quality}


def _quality_facets(item: Item) -> dict[str, Any]:
    from openlineage.client.facet_v2 import data_quality_metrics_dataset as metrics

    if item.content is None:
        return {}
    counts = item.content
    quality = metrics.DataQualityMetricsDatasetFacet(
        columnMetrics=_column_metrics(metrics.ColumnMetrics, counts), rowCount=counts.rows, bytes=counts.bytes,
        fileCount=counts.files,
    )  # fmt: skip
    return {"dataQualityMetrics": quality}


def _output_facets(item: Item) -> dict[str, Any]:
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    if item.written is None:
        return {}
    counts = item.written
    facet = statistics.OutputStatisticsOutputDatasetFacet(
        rowCount=counts.rows, size=counts.bytes, fileCount=counts.files
    )
    return {"outputStatistics": facet}


def _column_metrics(metrics: Any, summary: Summary) -> dict[str, Any]:
    return {
        name: metrics(
            nullCount=column.nulls, count=column.count, min=_get_finite(column.min), max=_get_finite(column.max),
            distinctCount=None if column.values is None else len(column.values),
        )
        for name, column in summary.statistics.items()
    }  # fmt: skip


def _get_finite(values: Sequence[float]) -> float | None:
    """Return the only value, None where there is none, or one that JSON cannot express."""
    return values[0] if values and math.isfinite(values[0]) else None


def describe_type(column: Column) -> str:
    """Return the type of a column's values: "int64", "float[28, 28]", or "list<float[3]>"."""
    element = f"{column.type}[{', '.join(map(str, column.shape))}]" if column.shape else column.type
    return f"list<{element}>" if column.kind == "list" else element


def _strip(path: str) -> str:
    return path.rstrip("/") or "/"
