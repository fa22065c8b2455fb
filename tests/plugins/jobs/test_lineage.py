"""OpenLineage: what jobs read and write, by its naming conventions, and the task as parent of its application."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openlineage.client import event_v2, facet_v2

from tests.plugins.conftest import ROOT
from tests.plugins.results import output
from tests.trainer import datasets
from trainyard.files import storage
from trainyard.jobs import lineage
from trainyard.schemas.datasets import manifest as manifests
from trainyard.schemas.datasets.manifest import Column
from trainyard.schemas.results import DatasetResult, ModelResult, PredictionsResult
from trainyard.schemas.specs.export import ExportSpec
from trainyard.schemas.specs.predict import PredictSpec
from trainyard.schemas.specs.source import Source
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainSpec

KEY = TaskKey(dag_id="toy", run_id="r", task_id="t", directory="/s")
DEFAULT_FS = "hdfs://namenode:8020"


@pytest.mark.parametrize(
    ("uri", "namespace", "name"),
    [
        ("hdfs://namenode:8020/trainyard/digits", "hdfs://namenode:8020", "/trainyard/digits"),
        ("hdfs:///trainyard/digits", "hdfs://namenode:8020", "/trainyard/digits"),
        ("hdfs://nameservice/trainyard/", "hdfs://nameservice", "/trainyard"),
        ("file:///data/digits", "file", "/data/digits"),
        ("/data/digits/", "file", "/data/digits"),
        ("s3://bucket/key/of/it", "s3://bucket", "key/of/it"),
        ("s3a://bucket/key", "s3://bucket", "key"),
        ("gs://bucket/key", "gs://bucket", "key"),
        ("s3://bucket", "s3://bucket", "/"),
        ("abfss://c@account.dfs.core.windows.net/p", "abfss://c@account.dfs.core.windows.net", "/p"),
    ],
)
def test_a_uri_is_named_by_the_conventions_of_openlineage(uri: str, namespace: str, name: str) -> None:
    assert lineage.identify(uri, DEFAULT_FS) == (namespace, name)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (Column(name="x", kind="scalar", type="int64"), "int64"),
        (Column(name="x", kind="tensor", type="float", shape=(28, 28)), "float[28, 28]"),
        (Column(name="x", kind="list", type="float", shape=(3,)), "list<float[3]>"),
    ],
)
def test_the_type_of_a_column_has_its_shape(column: Column, text: str) -> None:
    assert lineage.describe_type(column) == text


def export(**fields: Any) -> ExportSpec:
    return ExportSpec(**{"task_key": KEY, "prepare": "toy.prepare:rows", "source": {"path": "/raw"}} | fields)


def test_before_its_end_a_job_has_inputs_and_outputs_by_name_alone() -> None:
    described = lineage.describe(export(dataset="/s/dataset"))
    assert [(item.uri, item.version) for item in (*described.inputs, *described.outputs)] == [
        ("/raw", ""), ("/s/dataset", ""),
    ]  # fmt: skip


def test_each_of_several_sources_is_an_input() -> None:
    sources = {"orders": {"path": "/orders"}, "rates": {"table": "rates"}, "people": {"path": "/people.csv"}}
    inputs = lineage.describe(export(source=None, sources=sources, dataset="/s/dataset")).inputs
    assert [(item.uri, item.format) for item in inputs] == [("/orders", "parquet"), ("/people.csv", "csv")]


def test_a_source_without_a_path_is_left_out() -> None:
    source = Source(format="jdbc", options={"dbtable": "rows"})
    assert lineage.describe(export(source=source, dataset="/s/dataset")).inputs == ()


def test_an_output_that_is_a_table_is_left_out() -> None:
    spec = PredictSpec(
        task_key=KEY, model="/s/model", source=Source(format="parquet", path="/raw"), keys=("id",), output="db.rows",
        output_format="table",
    )  # fmt: skip
    assert lineage.describe(spec, PredictionsResult(**output("predict"))).outputs == ()


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    rows = {"x": np.arange(8, dtype=np.float32), "y": np.arange(8, dtype=np.int64)}
    return datasets.write(
        tmp_path / "dataset", {"train": rows, "validation": {"x": rows["x"] + 8, "y": rows["y"]}, "test": rows}
    )


def test_statistics_are_those_of_the_splits_that_a_job_reads(dataset: str) -> None:
    spec = TrainSpec(task_key=KEY, recipe="toy.recipe:network", dataset=dataset, model="/s/model")
    (item,) = lineage.describe(spec, ModelResult(**output("train"))).inputs
    assert item.content
    x = item.content.statistics["x"]
    assert (item.content.rows, x.count, x.min, x.max) == (16, 16, (0.0,), (15.0,))


def test_an_unchanged_export_has_written_nothing(dataset: str) -> None:
    result = DatasetResult.from_manifest(dataset, manifests.read_current(dataset), None)
    written, reused = (
        lineage.describe(export(dataset=dataset), result.model_copy(update=more)).outputs[0]
        for more in ({}, {"reused": True})
    )
    assert written.written and written.written.rows == 24
    assert (reused.version, reused.written) == ("1", None)


def test_without_the_provider_nothing_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "airflow.providers.openlineage", None)

    def describe() -> lineage.Lineage:
        raise AssertionError

    assert lineage.keep(describe) is None


def test_a_broken_setting_is_logged_and_not_raised(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> bool:
        raise ValueError("the transport is no JSON")

    monkeypatch.setattr(lineage, "is_enabled", fail)
    assert lineage.keep(lambda: lineage.describe(export(dataset="/nowhere"))) is None
    assert "OpenLineage gets no versions of inputs and outputs: the transport is no JSON" in caplog.text


def test_an_error_is_logged_and_not_raised(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(lineage, "is_enabled", lambda: True)
    result = DatasetResult(**output("export", version=3))
    assert lineage.keep(lambda: lineage.describe(export(dataset="/nowhere"), result)) is None
    assert "OpenLineage gets no versions of inputs and outputs: /nowhere has no version 3" in caplog.text


def inject(conf: dict[str, str]) -> dict[str, str] | None:
    return lineage.inject_into_spark(conf, {})  # type: ignore[typeddict-item]


def test_spark_gets_no_parent_unless_airflow_is_configured_so() -> None:
    assert inject({"spark.a": "1"}) == {"spark.a": "1"}


def test_a_parent_of_the_users_own_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__SPARK_INJECT_PARENT_JOB_INFO", "True")
    conf = {"spark.openlineage.parentRunId": "own"}
    assert inject(conf) == conf


def test_a_parent_that_cannot_be_determined_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__SPARK_INJECT_PARENT_JOB_INFO", "True")
    assert inject({"spark.a": "1"}) == {"spark.a": "1"}
    assert "OpenLineage properties cannot be added to the Spark configuration" in caplog.text


TRANSPORT = """
from trainyard.jobs import lineage
import json
print(json.dumps(lineage.inject_into_spark({}, {})))
"""


@pytest.mark.slow
def test_spark_gets_the_transport_without_its_credentials(environment: dict[str, str], python: Any) -> None:
    transport = {"type": "http", "url": "http://lineage:5000", "auth": {"type": "api_key", "apiKey": "the-key"}}
    environment |= {
        "AIRFLOW__OPENLINEAGE__SPARK_INJECT_TRANSPORT_INFO": "True",
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport),
    }
    process = python("-c", TRANSPORT)
    conf = json.loads(process.stdout.splitlines()[-1])
    assert conf["spark.openlineage.transport.url"] == "http://lineage:5000"
    assert "the-key" not in process.stdout + process.stderr
    assert "spark.openlineage.transport.auth.apiKey" in process.stdout + process.stderr


DAG = """
from airflow.sdk import DAG
from trainyard.operators import EvaluateOperator, ExportOperator, PredictOperator, PromoteOperator, TrainOperator

with DAG("lineage", schedule=None):
    export = ExportOperator(
        task_id="export", prepare="toy.prepare:rows", prepare_params={"conf": "CONF"}, source="SOURCE", format="json",
        dataset="dataset", splits={"train": 0.8, "test": 0.2},
    )
    train = TrainOperator(
        task_id="train", recipe="toy.recipe:network", dataset=export.output, model="model", epochs=1, batch_size=8
    )
    evaluate = EvaluateOperator(task_id="evaluate", model=train.output, dataset=export.output, metrics=["mae"])
    promote = PromoteOperator(task_id="promote", evaluation=evaluate.output, champion="champion", metric="mae")
    predict = PredictOperator(
        task_id="predict", model=promote.output, source="SOURCE", format="json", keys=["y"], output="predictions"
    )
    broken = ExportOperator(task_id="broken", prepare="toy.prepare:broken", source="SOURCE", format="json",
        dataset="broken")
    predict >> broken
"""
PREPARE = """
    import json

    def rows(spark, source, conf):
        with open(conf, "w") as file:
            json.dump(dict(spark.sparkContext.getConf().getAll()), file)
        return source

    def broken(spark, source):
        raise ValueError("no such column")
"""
RECIPE = """
from torch import nn
from trainyard.trainer import Recipe

class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = nn.Linear(1, 1)

    def forward(self, x):
        return self.slope(x[:, None])[:, 0]

def network() -> Recipe:
    return Recipe(
        model=Line(), features="x", label="y", loss=nn.MSELoss(), predict=lambda output: {"estimate": output}
    )
"""
FACETS: dict[str, type[Any]] = {
    "dataSource": facet_v2.datasource_dataset.DatasourceDatasetFacet,
    "storage": facet_v2.storage_dataset.StorageDatasetFacet,
    "datasetType": facet_v2.dataset_type_dataset.DatasetTypeDatasetFacet,
    "version": facet_v2.dataset_version_dataset.DatasetVersionDatasetFacet,
    "schema": facet_v2.schema_dataset.SchemaDatasetFacet,
    "dataQualityMetrics": facet_v2.data_quality_metrics_dataset.DataQualityMetricsDatasetFacet,
}
INPUT_FACETS: dict[str, type[Any]] = {
    "inputStatistics": facet_v2.input_statistics_input_dataset.InputStatisticsInputDatasetFacet,
    "dataQualityMetrics": facet_v2.data_quality_metrics_input_dataset.DataQualityMetricsInputDatasetFacet,
}
OUTPUT_FACETS: dict[str, type[Any]] = {
    "outputStatistics": facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
}


def parse_facets(facets: dict[str, Any], classes: dict[str, type[Any]]) -> dict[str, Any]:
    return {
        name: classes[name](**{key: value for key, value in facet.items() if not key.startswith("_")})
        for name, facet in facets.items()
    }


def parse(event: dict[str, Any]) -> event_v2.RunEvent:
    """Return an event as the client's own class, which checks it and each facet of the datasets."""
    inputs = [
        event_v2.InputDataset(
            each["namespace"], each["name"], facets=parse_facets(each["facets"], FACETS),
            inputFacets=parse_facets(each["inputFacets"], INPUT_FACETS),
        )
        for each in event["inputs"]
    ]  # fmt: skip
    outputs = [
        event_v2.OutputDataset(
            each["namespace"], each["name"], facets=parse_facets(each["facets"], FACETS),
            outputFacets=parse_facets(each["outputFacets"], OUTPUT_FACETS),
        )
        for each in event["outputs"]
    ]  # fmt: skip
    return event_v2.RunEvent(
        eventTime=event["eventTime"], eventType=event_v2.RunState(event["eventType"]), producer=event["producer"],
        run=event_v2.Run(event["run"]["runId"], event["run"]["facets"]),
        job=event_v2.Job(event["job"]["namespace"], event["job"]["name"], event["job"]["facets"]),
        inputs=inputs, outputs=outputs,
    )  # fmt: skip


@dataclass(frozen=True)
class DagRun:
    """The events of a DAG run, by task and type, and the configuration of the export's Spark application."""

    events: dict[tuple[str, str], event_v2.RunEvent]
    conf: dict[str, str]
    source: str
    storage: str

    def get(self, task: str, kind: str = "COMPLETE") -> event_v2.RunEvent:
        return self.events[f"lineage.{task}", kind]

    def items(self, task: str, kind: str = "COMPLETE") -> dict[str, Any]:
        """Return the inputs and outputs of a task by their names below the storage root."""
        event = self.get(task, kind)
        assert {item.namespace for item in (*event.inputs, *event.outputs)} == {"file"}
        return {item.name.removeprefix(f"{self.storage}/"): item for item in (*event.inputs, *event.outputs)}


@pytest.fixture(scope="module")
def dag_run(airflow_database: Path, tmp_path_factory: pytest.TempPathFactory) -> DagRun:
    folder = tmp_path_factory.mktemp("lineage")
    source, conf, log = folder / "source.json", folder / "conf.json", folder / "events.jsonl"
    source.write_text("".join(f'{{"x": {n}.5, "y": {n}}}\n' for n in range(100)))
    files = {"__init__": "", "prepare": textwrap.dedent(PREPARE), "recipe": RECIPE}
    files["dag"] = DAG.replace("SOURCE", str(source)).replace("CONF", str(conf))
    for name, text in files.items():
        storage.replace(str(folder / "dags" / "toy" / f"{name}.py"), text.encode())
    environment = os.environ | {
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps({"type": "file", "log_file_path": str(log), "append": True}),
        "AIRFLOW__OPENLINEAGE__NAMESPACE": "tests",
        "AIRFLOW__OPENLINEAGE__SPARK_INJECT_PARENT_JOB_INFO": "True",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "AIRFLOW_CONN_TRAINYARD_DEFAULT": json.dumps(
            {"conn_type": "trainyard", "extra": {"storage": f"file://{folder}/s"}}
        ),
        "PYTHONPATH": f"{ROOT / 'plugins'}:{folder / 'dags'}",
    }
    command = [sys.executable, "-m", "airflow", "dags", "test", "lineage"]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert conf.exists(), process.stdout[-5000:]
    events = [parse(json.loads(line)) for line in log.read_text().splitlines()]
    by_task = {(event.job.name, event.eventType.value): event for event in events}
    return DagRun(by_task, json.loads(conf.read_text()), str(source), f"{folder}/s")


def integration(test: Any) -> Any:
    return pytest.mark.full(pytest.mark.airflow(pytest.mark.spark(test)))


@integration
def test_tasks_are_connected_by_what_they_read_and_write(dag_run: DagRun) -> None:
    evaluation = dag_run.get("evaluate").outputs[0].name.removeprefix(f"{dag_run.storage}/")
    assert evaluation.startswith("model/") and "/evaluations/test-" in evaluation

    def names(task: str) -> tuple[list[str], list[str]]:
        event = dag_run.get(task)
        inputs, outputs = (
            [item.name.removeprefix(f"{dag_run.storage}/") for item in items] for items in (event.inputs, event.outputs)
        )
        return inputs, outputs

    assert names("export") == ([dag_run.source], ["dataset"])
    assert names("train") == (["dataset"], ["model"])
    assert names("evaluate") == (["dataset", "model"], [evaluation])
    assert names("promote") == ([evaluation, "model"], ["champion"])
    assert names("predict") == ([dag_run.source, "champion"], ["predictions"])


@integration
def test_versions_are_those_that_were_read_and_written(dag_run: DagRun) -> None:
    weights = dag_run.items("train")["model"].facets["version"]
    assert dag_run.items("export")["dataset"].facets["version"].datasetVersion == "1"
    assert dag_run.items("train")["dataset"].facets["version"].datasetVersion == "1"
    assert len(weights.datasetVersion) == 64
    assert dag_run.items("promote")["champion"].facets["version"] == weights
    assert dag_run.items("predict")["champion"].facets["version"] == weights


@integration
def test_schemas_are_the_columns_of_datasets_models_and_predictions(dag_run: DagRun) -> None:
    def fields(task: str, name: str) -> list[tuple[str, str | None]]:
        return [(each["name"], each.get("type")) for each in dag_run.items(task)[name].facets["schema"].fields]

    assert fields("export", "dataset") == fields("train", "model") == [("x", "double"), ("y", "int64")]
    assert [name for name, _ in fields("predict", "predictions")] == ["y", "estimate"]


@integration
def test_rows_bytes_and_values_are_counted(dag_run: DagRun) -> None:
    dataset = dag_run.items("export")["dataset"]
    written, quality = dataset.outputFacets["outputStatistics"], dataset.facets["dataQualityMetrics"]
    shards = list(Path(dag_run.storage, "dataset/shards").rglob("*.arrow"))
    assert (written.rowCount, written.size, written.fileCount) == (
        100, sum(shard.stat().st_size for shard in shards), len(shards),
    )  # fmt: skip
    x = quality.columnMetrics["x"]
    assert (x["count"], x["nullCount"], x["distinctCount"], x["min"], x["max"]) == (100, 0, 100, 0.5, 99.5)
    read = [dag_run.items(task)["dataset"].inputFacets["inputStatistics"].rowCount for task in ("train", "evaluate")]
    assert sum(read) == 100 and read[0] > read[1] > 0
    assert dag_run.items("predict")["predictions"].outputFacets["outputStatistics"].rowCount == 100


@integration
def test_a_task_that_starts_or_fails_has_names_without_versions(dag_run: DagRun) -> None:
    for kind in ("START", "FAIL"):
        assert list(dag_run.items("broken", kind)) == [dag_run.source, "broken"]
        assert "version" not in dag_run.items("broken", kind)["broken"].facets


@integration
def test_the_spark_application_has_the_task_as_its_parent(dag_run: DagRun) -> None:
    event = dag_run.get("export")
    properties = {
        name.removeprefix("spark.openlineage."): value
        for name, value in dag_run.conf.items()
        if name.startswith("spark.openlineage.")
    }
    assert properties == {
        "parentJobNamespace": "tests", "parentJobName": "lineage.export", "parentRunId": event.run.runId,
        "rootParentJobNamespace": "tests", "rootParentJobName": "lineage",
        "rootParentRunId": event.run.facets["parent"]["run"]["runId"],
    }  # fmt: skip
