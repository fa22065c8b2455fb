"""The export job writes a dataset and returns its summary."""

from __future__ import annotations

import hashlib
import inspect
import sys
from pathlib import Path

import pytest

from trainyard.errors import TrainyardError
from trainyard.etl.jobs.exporting import export
from trainyard.etl.jobs.functions import UserFunction
from trainyard.schemas.datasets import manifest
from trainyard.schemas.runs import events
from trainyard.schemas.specs.export import ExportSpec
from trainyard.schemas.specs.source import Source
from trainyard.schemas.specs.task_key import TaskKey

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def prepares(monkeypatch):
    """Make the module of prepare functions importable by its own name."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    yield
    sys.modules.pop("prepares", None)


@pytest.fixture
def source(spark, tmp_path):
    spark.range(1000).write.parquet(str(tmp_path / "source"))
    return Source(format="parquet", path=str(tmp_path / "source"))


def make_spec(tmp_path, source, **fields) -> ExportSpec:
    task_key = TaskKey(dag_id="d", run_id="r", task_id="export", directory=str(tmp_path / "run"))
    values = {"prepare": "prepares:images", "shapes": {"image": (2, 2)}, "rows_per_batch": 64} | fields
    return ExportSpec(task_key=task_key, source=source, dataset=str(tmp_path / "dataset"), **values)


def run(spark, spec):
    log = events.EventLog(spec.task_key.directory, spec.task_key.task, "driver")
    result = export.run(spark, spec, log)
    log.flush()
    return result.to_xcom()


def test_each_row_of_the_source_is_in_one_split(spark, tmp_path, source):
    spec = make_spec(tmp_path, source, shards=3)
    result = run(spark, spec)
    frame = spark.read.format("trainyard").load(spec.dataset)
    assert sorted(row.key for row in frame.collect()) == sorted(f"k{i}" for i in range(1000))
    dataset = manifest.read_current(spec.dataset)
    assert list(dataset.splits) == ["train", "validation", "test"]
    assert dataset.column("image").shape == (2, 2)
    assert result == {
        "uri": spec.dataset,
        "content_hash": dataset.content_hash,
        "version": 1,
        "rows": 1000,
        "splits": {name: split.rows for name, split in dataset.splits.items()},
        "partitions": 1,
        "shards": 9,
        "record_batches": sum(len(s.batches) for split in dataset.splits.values() for s in split.shards),
        "bytes": sum(s.bytes for split in dataset.splits.values() for s in split.shards),
        "warnings": [],
    }
    spans = {event["name"] for event in events.read(spec.task_key.directory) if event["ph"] == "X"}
    assert spans == {"import prepare", "read source", "prepare", "write dataset"}


def test_an_export_that_the_operator_lets_compare_writes_nothing_if_it_is_unchanged(spark, tmp_path, source):
    spec = make_spec(tmp_path, source, shards=2, fingerprint="source=1 code=2 options=3", skip_unchanged=True)
    assert "reused" not in run(spark, spec)
    again = run(spark, spec)
    assert (again["reused"], again["version"], again["rows"]) == (True, 1, 1000)
    assert run(spark, spec.model_copy(update={"fingerprint": "source=1 code=0 options=3"}))["version"] == 2


def test_a_table_without_versions_is_exported_each_time(spark, tmp_path):
    spark.range(1000).createOrReplaceTempView("numbers")
    spec = make_spec(
        tmp_path, Source.model_validate({"table": "numbers"}), shards=2, skip_unchanged=True,
        fingerprint="source=1 tables=? code=2 options=3",
    )  # fmt: skip
    assert [run(spark, spec)["version"] for _ in range(2)] == [1, 2]
    provenance = manifest.read_current(spec.dataset).provenance
    assert (provenance.fingerprint, provenance.source_versions) == ("", {})


def test_a_second_export_of_one_source_has_the_same_content_hash(spark, tmp_path, source):
    spec = make_spec(tmp_path, source, shards=2)
    one, other = run(spark, spec), run(spark, spec)
    assert one["content_hash"] == other["content_hash"]
    assert other["version"] == 2
    assert run(spark, make_spec(tmp_path, source, shards=2, seed=1))["content_hash"] != one["content_hash"]


def test_stratified_fractions_hold_for_rows_that_differ_each_time_they_are_computed(spark, tmp_path, source):
    spec = make_spec(tmp_path, source, prepare="prepares:noise", shapes={}, stratify="stratum")
    assert run(spark, spec)["splits"] == {"train": 800, "validation": 100, "test": 100}


def test_prepare_params_are_passed_to_prepare(spark, tmp_path, source):
    run(spark, make_spec(tmp_path, source, prepare_params={"scale": 0.5}))
    assert manifest.read_current(str(tmp_path / "dataset")).splits["train"].statistics["image"].max[0] < 500


@pytest.fixture
def several(spark, tmp_path):
    """A table of the catalog in several files, CSV files, and the rows of a query, with keys that others lack."""
    orders = spark.range(500).selectExpr("id % 40 AS customer", "cast(id AS double) AS amount").repartition(3)
    orders.write.option("path", str(tmp_path / "orders")).saveAsTable("sales_orders")
    customers = spark.range(10, 60).selectExpr("id AS customer", "concat('city ', id % 4) AS city").repartition(2)
    customers.write.csv(str(tmp_path / "customers.csv"), header=True)
    spark.range(3).selectExpr("concat('city ', id) AS city", "id * 1000 AS inhabitants").createOrReplaceTempView(
        "towns"
    )
    yield {
        "orders": {"table": "sales_orders"},
        "customers": {"path": str(tmp_path / "customers.csv"), "options": {"header": True}},
        "cities": {"query": "SELECT * FROM towns WHERE inhabitants > 0"},
    }
    spark.sql("DROP TABLE sales_orders")
    spark.catalog.dropTempView("towns")


def test_several_sources_are_arguments_of_prepare_by_their_names(spark, tmp_path, several):
    fields = {
        "prepare": "prepares:totals",
        "prepare_params": {"at_least": "100"},
        "shapes": {},
        "sources": several,
        "splits": {"train": 1.0},
    }
    spec = make_spec(tmp_path, None, **fields)
    run(spark, spec)
    amounts = {id % 40: 0.0 for id in range(500)}
    for id in range(100, 500):
        amounts[id % 40] += id
    expected = {(c, amounts[c], c % 4 * 1000) for c in range(10, 40) if c % 4 in (1, 2)}
    rows = spark.read.format("trainyard").load(spec.dataset).collect()
    assert {(row.customer, row.amount, row.inhabitants) for row in rows} == expected
    provenance = manifest.read_current(spec.dataset).provenance
    assert provenance.source == f"table sales_orders, csv at {tmp_path}/customers.csv, query"


def test_one_source_with_a_name_is_an_argument_by_this_name(spark, tmp_path, source):
    spec = make_spec(tmp_path, None, prepare="prepares:named", shapes={}, sources={"orders": source})
    assert run(spark, spec)["rows"] == 1000


def test_a_table_that_does_not_exist_is_named(spark, tmp_path):
    spec = make_spec(tmp_path, {"table": "sales.nothing"})
    with pytest.raises(TrainyardError, match=r"the source table sales.nothing .*cannot be found"):
        run(spark, spec)


def test_a_parameter_with_the_name_of_a_source_is_refused(spark, tmp_path, several):
    fields = {
        "prepare": "prepares:totals",
        "prepare_params": {"orders": 1},
        "shapes": {},
        "sources": several,
        "splits": {"train": 1.0},
    }
    with pytest.raises(TrainyardError, match="prepare_params has 'orders', which is a source; rename one of them"):
        run(spark, make_spec(tmp_path, None, **fields))


def test_the_provenance_has_source_and_code(spark, tmp_path, source):
    spec = make_spec(tmp_path, source)
    run(spark, spec)
    provenance = manifest.read_current(spec.dataset).provenance
    module = UserFunction.load("prepare", spec.prepare).module
    assert provenance.application == spark.sparkContext.applicationId
    assert (provenance.source, provenance.prepare) == (f"parquet at {source.path}", "prepares:images")
    assert provenance.code_hash == hashlib.sha256(inspect.getsource(module).encode()).hexdigest()
    assert set(provenance.versions) == {"trainyard", "python", "pyspark", "pyarrow"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prepare": "nowhere:images"}, r"prepare='nowhere:images' cannot be imported: ModuleNotFoundError"),
        ({"prepare": "prepares:image"}, r"prepares has no function 'image'; it has images, nothing, empty"),
        ({"prepare": "prepares:nothing"}, r"prepare='prepares:nothing' returned NoneType; it must return a DataFrame"),
        ({"prepare_params": {"size": 3}}, r"prepare_params=\{'size': 3\}: got an unexpected keyword argument 'size'"),
        (
            {"split_by": "user"},
            r"split_by names the column 'user', which does not exist; columns are key, image, label",
        ),
        (
            {"stratify": "kind"},
            r"stratify names the column 'kind', which does not exist; columns are key, image, label",
        ),
        ({"prepare": "prepares:reserved"}, r"^the column '__ORDER' has a name that the export uses itself; rename it"),
        (
            {"prepare": "prepares:cases", "shapes": {}},
            r"^the columns 'price' and 'Price' differ in case only, which Spark does not distinguish; rename one",
        ),
        ({"shapes": {"picture": (2, 2)}}, r"shapes names the column 'picture'.*key, image, label"),
        (
            {"variable_length": ("tokens",), "shapes": {}},
            r"^variable_length names the column 'tokens'.*key, image, label",
        ),
        ({"prepare": "prepares:empty"}, r"there are no rows to write"),
        (
            {"prepare": "prepares:days", "shapes": {}, "splits": "part", "expect": {"part": {"nulls": 0}}},
            r"^expect names the column 'part', which splits names too, so that the dataset does not have it; "
            r"remove it from expect\.$",
        ),
        (
            {
                "prepare": "prepares:days",
                "shapes": {},
                "splits": "part",
                "expect": {"part": {"unique_with": ("id",)}},
            },
            r"^expect names the column 'part', .* write expect=\{'id': \{'unique_with': \['part'\]\}\}\.$",
        ),
        ({"splits": {"train": 0.9999999, "test": 1e-7}}, r"split 'test' has no rows: 1,000 rows are in train"),
    ],
)
def test_a_bad_export_is_refused_and_leaves_no_files(spark, tmp_path, source, fields, message):
    with pytest.raises(TrainyardError, match=message):
        run(spark, make_spec(tmp_path, source, **fields))
    assert list(tmp_path.glob("dataset/**/*.arrow")) == []
    assert not (tmp_path / "dataset" / "manifest.json").exists()


def test_a_prepare_that_reads_a_dataset_is_told_to_register_the_format(spark, tmp_path, source):
    message = r"^prepare='prepares:dataset' uses format\('trainyard'\) .* Call trainyard.etl.register\(spark\) before"
    with pytest.raises(TrainyardError, match=message):
        run(spark.newSession(), make_spec(tmp_path, source, prepare="prepares:dataset"))


def test_a_column_of_the_data_names_the_splits_and_is_not_stored(spark, tmp_path, source):
    unique = {"id": {"unique_with": ("part",)}}
    spec = make_spec(tmp_path, source, prepare="prepares:days", shapes={}, splits="part", expect=unique)
    result = run(spark, spec)
    assert result["splits"] == {"known": 900, "new": 100}
    frame = spark.read.format("trainyard").option("split", "new").load(str(tmp_path / "dataset"))
    assert frame.columns == ["id", "day"]
    assert {row.id for row in frame.collect()} == set(range(900, 1000))


def test_splits_by_time_never_train_on_the_future(spark, tmp_path, source):
    times = {"validation": "2028-01-01", "test": "2028-07-01"}
    fields = {"prepare": "prepares:days", "shapes": {}, "split_by": "day", "splits": times}
    run(spark, make_spec(tmp_path, source, **fields))
    dataset = manifest.read_current(str(tmp_path / "dataset"))
    assert list(dataset.splits) == ["train", "validation", "test"]
    reads = (
        spark.read.format("trainyard").option("split", name).load(str(tmp_path / "dataset")) for name in dataset.splits
    )
    first_and_last = [frame.selectExpr("string(min(day))", "string(max(day))").first() for frame in reads]
    assert [tuple(row) for row in first_and_last] == [
        ("2026-01-01", "2027-12-31"), ("2028-01-01", "2028-06-30"), ("2028-07-01", "2028-09-26"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"splits": "id"}, r"the split column 'id' has type bigint; cast it to string"),
        ({"splits": "fold"}, r"splits names the column 'fold', which does not exist"),
        ({"split_by": "part", "splits": {"test": "2028-01-01"}}, r"split_by='part' has type string.*cast it to date"),
        ({"split_by": "day", "splits": {"test": "2048-01-01"}}, r"split 'test' has no rows"),
    ],
)
def test_columns_that_assign_no_splits_are_refused(spark, tmp_path, source, fields, message):
    with pytest.raises(TrainyardError, match=message):
        run(spark, make_spec(tmp_path, source, prepare="prepares:days", shapes={}, **fields))


def test_folds_divide_the_training_split_into_equal_parts(spark, tmp_path, source):
    fields = {"splits": {"train": 0.9, "test": 0.1}, "folds": 3, "stratify": "label"}
    result = run(spark, make_spec(tmp_path, source, **fields))
    assert list(result["splits"]) == ["fold-1", "fold-2", "fold-3", "test"]
    assert result["splits"] == pytest.approx({"fold-1": 300, "fold-2": 300, "fold-3": 300, "test": 100}, abs=3)


def test_splits_that_equal_rows_have_moved_from_their_fractions_are_a_warning(spark, tmp_path, source, capsys):
    repeated = {"prepare": "prepares:repeated", "shapes": {}, "seed": 9}
    (warning,) = run(spark, make_spec(tmp_path, source, **repeated))["warnings"]
    assert "of the rows, and 10.0% were asked for" in warning and "about 16 of 1,000 rows are distinct" in warning
    assert f"WARNING: {warning}" in capsys.readouterr().out
    in_two = repeated | {"splits": "split", "prepare_params": {"splits": 2}}
    (warning,) = run(spark, make_spec(tmp_path, source, **in_two))["warnings"]
    assert warning.startswith("about 16 of 16 distinct rows are in several splits")
