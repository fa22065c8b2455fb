"""Expectations and drift are checked against statistics before a version is committed."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.errors import TrainyardError, reason
from trainyard.etl.datasource.writing.quality import check_drift, check_expectations, compare_models, measure_drift
from trainyard.schemas.datasets import manifest, versions
from trainyard.schemas.datasets.manifest import Column, Partition, Provenance, Split, Statistics
from trainyard.schemas.specs.source import Drift, Expectation, RowCount

PRICE = Statistics(count=90, nulls=10, mean=(5.0,), std=(2.0,), min=(-1.0,), max=(9.5,))
KIND = Statistics(count=100, values={"cat": 97, "dog": 3})
TAGS = Statistics(count=100)


def find_problems(column: str, statistics: Statistics, kind: str = "double", **expected: object) -> str:
    split = Split(rows=100, shards=(), statistics={column: statistics})
    try:
        columns = [Column(name=column, kind="scalar", type=kind)]
        check_expectations("s/dataset", columns, {"train": split}, {column: Expectation(**expected)})  # type: ignore[arg-type]
    except TrainyardError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("column", "statistics", "expected"),
    [
        ("price", PRICE, {"min": -1, "max": 9.5, "nulls": 0.1}),
        ("kind", KIND, {"values": ["cat", "dog"], "rows_per_value": 3}),
        ("kind", KIND, {"nulls": 0}),
        ("price", Statistics(count=0, nulls=100), {"min": 0}),
    ],
)
def test_data_that_meets_expectations_is_accepted(column, statistics, expected):
    assert find_problems(column, statistics, **expected) == ""


def test_what_is_not_as_expected_is_a_warning_where_that_is_its_severity() -> None:
    columns = [Column(name="price", kind="scalar", type="double"), Column(name="kind", kind="scalar", type="string")]
    split = Split(rows=100, shards=(), statistics={"price": PRICE, "kind": KIND})
    warned = {"price": Expectation(min=0, severity="warn"), "kind": Expectation(nulls=0)}
    rows = RowCount(min=1000, severity="warn")
    splits = {"train": split, "test": split}
    assert check_expectations("d", columns, splits, warned, rows) == (
        "split train, column price: expected min 0, found -1",
        "split test, column price: expected min 0, found -1",
        "all rows: expected min 1,000 rows, found 200",
    )
    failing = warned | {"kind": Expectation(values=["cat"])}
    with pytest.raises(TrainyardError, match=r"found\ntrain  kind    one of cat  dog \(3 rows\)\ntest .*\nCorrect"):
        check_expectations("d", columns, splits, failing, rows)


@pytest.mark.parametrize(
    ("expected", "row"),
    [
        ({"min": 101}, "all            min 101 rows  100"),
        ({"max": 9}, "max 9 rows  100"),
        ({"min": 100, "max": 100}, ""),
    ],
)
def test_the_rows_of_all_splits_together_are_counted(expected: dict[str, int], row: str) -> None:
    splits = {name: Split(rows=rows, shards=(), statistics={}) for name, rows in (("train", 80), ("test", 20))}
    try:
        check_expectations("d", [], splits, {}, RowCount(**expected))
        message = ""
    except TrainyardError as error:
        message = str(error)
    assert row in message and bool(message) is bool(row)


@pytest.mark.parametrize(
    ("column", "statistics", "expected", "row"),
    [
        ("price", PRICE, {"min": 0}, "train  price   min 0     -1"),
        ("price", PRICE, {"max": 9}, "train  price   max 9     9.5"),
        ("price", PRICE, {"nulls": 0.05}, "train  price   nulls at most 0.05  0.1 (10 of 100)"),
        ("kind", KIND, {"values": ["cat"]}, "train  kind    one of cat  dog (3 rows)"),
        ("kind", KIND, {"values": ["cow", "hen"]}, "train  kind    one of cow, hen  cat (97 rows), dog (3 rows)\n"),
        ("kind", KIND, {"rows_per_value": 5}, "train  kind    5 rows of 'dog'  3"),
        ("kind", KIND, {"values": ["cat", "dog", "cow"], "rows_per_value": 1}, "train  kind    1 rows of 'cow'  0"),
        ("kind", KIND, {"min": 0, "max": 9}, "train  kind    min 0 and max 9  a column without numbers"),
        ("tags", TAGS, {"values": ["a"]}, "train  tags    at most 1,000 values  more than 1,000 values, or no scalar"),
    ],
)
def test_a_violation_is_a_row_of_a_table(column, statistics, expected, row):
    message = find_problems(column, statistics, **expected)
    first, header, *_ = message.splitlines()
    assert first.startswith(
        f"the data for s/dataset does not meet expectations: split train, column {column}: expected "
    )
    assert header.split() == ["split", "column", "expected", "found"]
    assert row in message


def test_the_first_line_has_the_first_violation_and_how_many_more_there_are():
    message = find_problems("price", PRICE, min=0, max=9)
    assert message.splitlines()[0] == (
        "the data for s/dataset does not meet expectations: split train, column price: expected min 0, found -1 (and 1 "
        "more); no version was committed."
    )


def test_an_expectation_of_a_missing_column_is_refused():
    split = Split(rows=1, shards=(), statistics={"price": PRICE, "kind": KIND})
    with pytest.raises(TrainyardError, match=r"names the column 'cost', which d does not have; it has price, kind"):
        check_expectations("d", [], {"train": split}, {"cost": Expectation(min=0)})


TENTH = float(np.float32(0.1))


@pytest.mark.parametrize(
    ("kind", "found", "expected", "problem"),
    [
        ("double", 0.0, {"values": [0, 1]}, None),
        ("double", -0.0, {"values": [0]}, None),
        ("int64", 1, {"values": [1.0]}, None),
        ("int64", 2**53 + 1, {"values": [2**53]}, f"one of {2**53}  {2**53 + 1} (1 rows)"),
        ("int64", 1, {"values": ["one", 1.5]}, "one of one, 1.5  1 (1 rows)"),
        ("string", "1", {"values": ["1.0"]}, "one of 1.0  1 (1 rows)"),
        ("bool", "true", {"values": [True]}, None),
        ("float", TENTH, {"values": [0.1, 0.5], "min": 0.1, "max": 0.1}, None),
        ("float", TENTH, {"values": [0.5]}, "one of 0.5  0.1 (1 rows)"),
        ("double", TENTH, {"max": 0.1}, "max 0.1   0.10000000149011612"),
    ],
)
def test_values_are_compared_in_the_type_of_their_column(kind, found, expected, problem):
    number = () if isinstance(found, str) else (float(found),)
    statistics = Statistics(count=1, mean=number, std=number, min=number, max=number, values={str(found): 1})
    message = find_problems("x", statistics, kind, **expected)
    assert problem in message if problem else message == ""


def test_all_violations_are_in_one_message():
    message = find_problems("price", PRICE, min=0, max=9, nulls=0)
    assert len(message.splitlines()) == 6
    assert message.endswith("\nCorrect the source or prepare, or change expect=.")


@given(st.dictionaries(st.sampled_from("abcde"), st.integers(1, 1000), min_size=1), st.integers(1, 9))
def test_equal_shares_have_no_drift(counts, times):
    more = {value: count * times for value, count in counts.items()}
    assert measure_drift(Statistics(count=1, values=more), Statistics(count=1, values=counts)) == pytest.approx(
        0, abs=1e-9
    )


def test_the_index_of_values_equals_its_definition():
    old, new = Statistics(count=100, values={"a": 50, "b": 50}), Statistics(count=10, values={"a": 8, "b": 2})
    index = (0.8 - 0.5) * math.log(0.8 / 0.5) + (0.2 - 0.5) * math.log(0.2 / 0.5)
    assert measure_drift(new, old) == measure_drift(old, new) == pytest.approx(index - (1 / 100 + 1 / 10))


@pytest.mark.parametrize(("values", "rows", "history"), [(80, 500, 500), (20, 100, 20_000), (1000, 5000, 5000)])
def test_samples_of_the_same_values_drift_little(values, rows, history):
    """The index of equally likely values is (values - 1) * (1 / rows + 1 / history) in the mean: here 0.2 to 0.4."""
    rng = np.random.default_rng(0)

    def sample(rows):
        counts = rng.multinomial(rows, np.full(values, 1 / values))
        return Statistics(count=rows, values={str(value): int(count) for value, count in enumerate(counts) if count})

    assert np.mean([measure_drift(sample(rows), sample(history)) for _ in range(20)]) < 0.1


@pytest.mark.parametrize(("mean", "std"), [(0.5, 1.0), (0.0, 1.5), (-0.7, 0.8)])
def test_the_index_of_numbers_approximates_that_of_their_histograms(mean, std):
    rng, edges = np.random.default_rng(0), np.linspace(-12, 12, 241)
    samples = rng.normal(0, 1, 2_000_000), rng.normal(mean, std, 2_000_000)
    p, q = (np.maximum(np.histogram(sample, edges)[0] / len(sample), 1e-7) for sample in samples)
    statistics = [numbers((s.mean(), s.std())) for s in samples]
    assert measure_drift(*statistics) == pytest.approx(float(((p - q) * np.log(p / q)).sum()), rel=0.02)


def numbers(*moments: tuple[float, float]) -> Statistics:
    """Return the statistics of many rows, of which each entry has a mean and a deviation."""
    mean, std = zip(*moments, strict=True)
    low, high = ([m + side * 3 * s for m, s in moments] for side in (-1, 1))
    return Statistics(count=10**9, mean=mean, std=std, min=low, max=high)


NUMBERS = numbers((5, 2))


@pytest.mark.parametrize(
    ("new", "old", "drift"),
    [
        (numbers((1, 0)), numbers((1, 0)), 0),
        (numbers((1, 0)), numbers((2, 0)), math.inf),
        (numbers((1, 0)), numbers((1, 1)), math.inf),
        (numbers((1, 2)), numbers((1, 0)), math.inf),
    ],
)
def test_a_constant_that_changes_has_infinite_drift(new, old, drift):
    assert measure_drift(new, old) == drift


@pytest.mark.parametrize(
    ("new", "old", "drift"),
    [
        (numbers((0, 1)), numbers((0, 1)), 0),
        (numbers((3, 1)), numbers((1, 1)), 4),
        (numbers((0, 2)), numbers((0, 1)), (4 + 1 / 4) / 2 - 1),
        (numbers((3, 2)), numbers((2, 1)), ((4 + 1) / 1 + (1 + 1) / 4) / 2 - 1),
    ],
)
def test_the_index_of_numbers_is_the_divergence_of_two_normal_distributions(new, old, drift):
    assert measure_drift(new, old) == measure_drift(old, new) == pytest.approx(drift)


def test_a_value_that_occurs_on_one_side_only_counts_as_a_small_share_of_the_other():
    both, one = Statistics(count=100, values={"a": 50, "b": 50}), Statistics(count=100, values={"a": 100})
    index = (1 - 0.5) * math.log(1 / 0.5) + (0.005 - 0.5) * math.log(0.005 / 0.5)
    assert measure_drift(one, both) == pytest.approx(index - (1 / 100 + 1 / 100))
    assert measure_drift(both, one) == pytest.approx(index - (1 / 100 + 1 / 100))


def test_a_rare_value_that_does_not_occur_in_a_few_rows_has_no_drift():
    few, many = Statistics(count=10), Statistics(count=19_990, nulls=10)
    assert measure_drift(few, many) == measure_drift(many, few) == 0


def test_the_drift_of_a_tensor_is_the_median_of_its_entries():
    old, new = numbers((0, 1), (0, 1), (0, 1)), numbers((3, 1), (0, 1), (1, 1))
    assert measure_drift(new, old) == pytest.approx(1.0), "of 9, 0 and 1"


def measure_rows(rows: np.ndarray) -> Statistics:
    return Statistics(count=len(rows), mean=rows.mean(0), std=rows.std(0), min=rows.min(0), max=rows.max(0))


@pytest.mark.parametrize("rows", [1, 20, 100, 1000])
def test_entries_of_sparse_vectors_that_are_zero_in_a_small_sample_do_not_drift(rows):
    vectors = np.eye(500)[np.random.default_rng(0).integers(0, 500, 20_000)]
    assert measure_drift(measure_rows(vectors[:rows]), measure_rows(vectors)) < 0.1


def test_numbers_of_which_few_are_very_large_have_infinite_drift_when_all_become_0():
    revenue = Statistics(count=10**6, mean=(10,), std=(300,), min=(0,), max=(1e5,))
    assert measure_drift(Statistics(count=5000, mean=(0,), std=(0,), min=(0,), max=(0,)), revenue) == math.inf


@pytest.mark.parametrize("constant", [0.0, 2.0])
def test_vectors_whose_entries_all_become_constant_have_infinite_drift(constant):
    vectors = np.random.default_rng(0).normal(size=(1000, 8))
    assert measure_drift(measure_rows(np.full((100, 8), constant)), measure_rows(vectors)) == math.inf


def test_vectors_whose_entries_are_no_longer_constant_have_infinite_drift():
    vectors = np.random.default_rng(0).normal(size=(100, 8))
    assert measure_drift(measure_rows(vectors), measure_rows(np.zeros((100, 8)))) == math.inf


def test_samples_of_a_few_numbers_drift_little():
    """The index of samples of a normal distribution is 2 (1 / new + 1 / old) in the mean: here 0.4."""
    samples = np.random.default_rng(0).normal(size=(200, 10, 1))
    drifts = [measure_drift(measure_rows(new), measure_rows(old)) for new, old in pairwise(samples)]
    assert np.median(drifts) < 0.05


@pytest.mark.parametrize("column", [KIND, PRICE, TAGS])
def test_a_column_whose_values_become_null_drifts(column):
    nulls = {"nulls": 99 * column.count, "values": column.values and {"cat": column.count}}
    sparse = column.model_copy(update=nulls)
    assert measure_drift(sparse, column) > 1 < measure_drift(column, sparse)


@pytest.mark.parametrize(
    ("new", "old"),
    [(TAGS, TAGS), (KIND, TAGS), (TAGS, NUMBERS), (NUMBERS, TAGS), (KIND, NUMBERS)],
)
def test_statistics_that_do_not_compare_have_no_drift(new, old):
    assert measure_drift(new, old) == 0


@pytest.mark.parametrize("rows", [500, 5000])
def test_numbers_that_seldom_repeat_are_compared_as_normal_distributions(rows):
    rng = np.random.default_rng(0)

    def sample():
        values = rng.normal(size=rows)
        counts = {str(value): 1 for value in values} if rows <= 1000 else None
        return measure_rows(values[:, None]).model_copy(update={"values": counts})

    assert measure_drift(sample(), sample()) < 0.05


def test_text_that_seldom_repeats_has_no_drift():
    new, old = (Statistics(count=100, values={f"{name}{n}": 1 for n in range(100)}) for name in "ab")
    assert measure_drift(new, old) == 0


def split(**statistics: Statistics) -> dict[str, Split]:
    return {"train": Split(rows=1, shards=(), statistics=statistics)}


def written_with(model: str) -> Provenance:
    return Provenance(application="a", written_at="now", model=model)


def partitions(*models: str) -> dict[str, Partition]:
    return {
        f"p{n}": Partition(directory="shards/d", version=1, rows=1, provenance=written_with(m))
        for n, m in enumerate(models)
    }


def test_features_of_other_weights_in_the_dataset_are_a_warning():
    [warning] = compare_models(written_with("a" * 64), partitions("a" * 64, "b" * 64, "c" * 64))
    assert warning.startswith(
        f"partition 'p1' (and 1 more) has features of the weights {'b' * 16}, and this one of {'a' * 16};"
    )


@pytest.mark.parametrize(("new", "others"), [("a", ["a", "a"]), ("a", []), ("a", [""]), ("", ["b"])])
def test_features_of_the_same_or_of_unknown_weights_are_no_warning(new, others):
    assert compare_models(written_with(new), partitions(*others)) == ()


COLUMNS = [Column(name="kind", kind="scalar", type="string")]
OLD, NEW = {"train": {"kind": KIND}}, split(kind=Statistics(count=1, values={"cat": 50, "dog": 50}))
INDEX = measure_drift(NEW["train"].statistics["kind"], KIND)
BELOW, ABOVE = math.nextafter(INDEX, 0), math.nextafter(INDEX, math.inf)


@pytest.mark.parametrize(("limit", "warns"), [(BELOW, True), (INDEX, True), (ABOVE, False)])
def test_drift_warns_from_its_limit_on(limit, warns):
    warning = f"split train, column kind: drifted by {INDEX:.3g} (warning from {limit:g} on)"
    assert check_drift("d", COLUMNS, NEW, OLD, Drift(warn=limit)) == ((warning,) if warns else ())


@pytest.mark.parametrize(("limit", "fails"), [(BELOW, True), (INDEX, True), (ABOVE, False)])
def test_drift_fails_from_its_limit_on(limit, fails):
    try:
        check_drift("d", COLUMNS, NEW, OLD, Drift(fail=limit))
    except TrainyardError as error:
        message = str(error)
    else:
        message = ""
    assert bool(message) == fails
    assert not fails or f"\ntrain  kind    below {limit:g}  {INDEX:.3g}\n" in message


def test_the_error_for_drift_is_a_table_with_the_fix():
    with pytest.raises(TrainyardError) as error:
        check_drift("d", COLUMNS, NEW, OLD, Drift(fail=1.5))
    assert str(error.value) == (
        "the data for d drifted from its current version: split train, column kind: expected below 1.5, found 1.61; no "
        "version was committed.\n"
        "split  column  expected   found\n"
        "train  kind    below 1.5  1.61\n"
        "Check the source; if the change is intended, raise drift={'fail': ...}."
    )


def test_the_columns_that_are_named_are_compared_and_by_default_all_but_dates_and_times():
    columns = [Column(name="kind", kind="scalar", type="string"), Column(name="day", kind="scalar", type="date32[day]")]
    old, new = Statistics(count=9, values={"2026-01-01": 9}), Statistics(count=9, values={"2026-01-02": 9})
    rows, before = split(kind=KIND, day=new), {"train": {"kind": KIND, "day": old}}
    assert check_drift("d", columns, rows, before, Drift()) == ()
    (warning,) = check_drift("d", columns, rows, before, Drift(columns=("day",)))
    assert warning.startswith("split train, column day: drifted by 5.24 ")
    with pytest.raises(
        TrainyardError, match=r"drift names the column 'cost', which d does not have; it has kind, day\."
    ):
        check_drift("d", columns, rows, before, Drift(columns=("cost",)))


def test_only_splits_and_columns_of_both_versions_are_compared():
    new = NEW | {"test": NEW["train"]}
    assert len(check_drift("d", COLUMNS, new, OLD, Drift(warn=INDEX))) == 1
    assert check_drift("d", COLUMNS, NEW, {"train": {"price": PRICE}}, Drift(warn=1e-9)) == ()
    assert check_drift("d", COLUMNS, split(kind=KIND), OLD, Drift()) == ()


@pytest.mark.spark
def test_refused_data_leaves_no_version_and_no_files(spark, tmp_path):
    def write(rows, **options):
        texts = {name: json.dumps(value) for name, value in options.items()}
        rows.write.format("trainyard").mode("overwrite").options(**texts).save(str(tmp_path / "d"))
        return manifest.read_current(str(tmp_path / "d"))

    rows = spark.range(100).selectExpr("id", "id % 2 as kind")
    assert write(rows, expect={"kind": {"values": [0, 1], "rows_per_value": 50}}).number == 1
    with pytest.raises(Exception) as caught:
        write(rows.selectExpr("id", "id % 3 as kind"), expect={"kind": {"values": [0, 1]}})
    assert "one of 0, 1  2 (33 rows)" in (reason(caught.value) or "")
    with pytest.raises(Exception) as caught:
        write(rows.selectExpr("id", "0 * id as kind"), drift={"fail": 0.25})
    assert "kind    below 0.25" in (reason(caught.value) or "")
    (warning,) = write(rows.where("id < 70").selectExpr("id", "kind"), drift={}).provenance.warnings
    assert warning.startswith("split train, column id: drifted by ")
    assert manifest.list_versions(str(tmp_path / "d")) == [1, 2]
    assert versions.unreferenced(str(tmp_path / "d")) == []


def write_kind(spark, path, sql, partition, drift=None):
    write = spark.range(100).selectExpr(f"{sql} as kind").write.format("trainyard").mode("overwrite")
    write = write.option("partition", partition)
    (write.option("drift", json.dumps(drift)) if drift else write).save(str(path))
    return manifest.read_current(str(path)).provenance.warnings


@pytest.mark.spark
def test_a_partition_is_compared_with_the_other_partitions_only(spark, tmp_path):
    for day in "123":
        write_kind(spark, tmp_path / "d", "id % 2", day)
    write_kind(spark, tmp_path / "d", "9L", "4")
    with pytest.raises(Exception, match=r"kind    below 0\.25"):
        write_kind(spark, tmp_path / "d", "9L", "4", drift={"fail": 0.25})
    assert write_kind(spark, tmp_path / "d", "id % 2", "4", drift={"warn": 1e-9}) == ()


@pytest.mark.spark
def test_the_only_partition_is_compared_with_its_previous_rows(spark, tmp_path):
    write_kind(spark, tmp_path / "d", "id % 2", "1")
    with pytest.raises(Exception, match=r"kind    below 0\.25"):
        write_kind(spark, tmp_path / "d", "9L", "1", drift={"fail": 0.25})
