"""Expectations and drift are checked against statistics before a version is committed."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.errors import TrainyardError, reason
from trainyard.etl.datasource.quality import check_drift, check_expectations, measure_drift
from trainyard.schemas import manifest, versions
from trainyard.schemas.manifest import Split, Statistics
from trainyard.schemas.specs.source import Drift, Expectation

PRICE = Statistics(count=90, nulls=10, mean=(5.0,), std=(2.0,), min=(-1.0,), max=(9.5,))
KIND = Statistics(count=100, values={"cat": 97, "dog": 3})
TAGS = Statistics(count=100)


def find_problems(column: str, statistics: Statistics, **expected: object) -> str:
    split = Split(rows=100, shards=(), statistics={column: statistics})
    try:
        check_expectations("s/dataset", {"train": split}, {column: Expectation(**expected)})  # type: ignore[arg-type]
    except TrainyardError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("column", "statistics", "expected"),
    [
        ("price", PRICE, {"min": -1, "max": 9.5, "nulls": 0.1}),
        ("kind", KIND, {"values": ["cat", "dog"], "rows_per_value": 3}),
        ("kind", KIND, {"min": 0, "nulls": 0}),
    ],
)
def test_data_that_meets_expectations_is_accepted(column, statistics, expected):
    assert find_problems(column, statistics, **expected) == ""


@pytest.mark.parametrize(
    ("column", "statistics", "expected", "row"),
    [
        ("price", PRICE, {"min": 0}, "train  price   min 0     -1"),
        ("price", PRICE, {"max": 9}, "train  price   max 9     9.5"),
        ("price", PRICE, {"nulls": 0.05}, "train  price   nulls at most 0.05  0.1 (10 of 100)"),
        ("kind", KIND, {"values": ["cat"]}, "train  kind    one of cat  dog (3 rows)"),
        ("kind", KIND, {"rows_per_value": 5}, "train  kind    5 rows of 'dog'  3"),
        ("kind", KIND, {"values": ["cat", "dog", "cow"], "rows_per_value": 1}, "train  kind    1 rows of 'cow'  0"),
        ("tags", TAGS, {"values": ["a"]}, "train  tags    at most 1,000 values  more than 1,000 values, or no scalar"),
    ],
)
def test_a_violation_is_a_row_of_a_table(column, statistics, expected, row):
    message = find_problems(column, statistics, **expected)
    assert message.startswith("the data for s/dataset does not meet expectations; no version was committed:\nsplit")
    assert row in message


def test_an_expectation_of_a_missing_column_is_refused():
    split = Split(rows=1, shards=(), statistics={"price": PRICE})
    with pytest.raises(TrainyardError, match="expect names the column 'cost', which d does not have; it has price"):
        check_expectations("d", {"train": split}, {"cost": Expectation(min=0)})


def test_all_violations_are_in_one_message():
    message = find_problems("price", PRICE, min=0, max=9, nulls=0)
    assert len(message.splitlines()) == 6


@given(st.dictionaries(st.sampled_from("abcde"), st.integers(1, 1000), min_size=1), st.integers(1, 9))
def test_equal_shares_have_no_drift(counts, times):
    more = {value: count * times for value, count in counts.items()}
    assert measure_drift(Statistics(count=1, values=more), Statistics(count=1, values=counts)) == pytest.approx(
        0, abs=1e-9
    )


def test_the_index_of_values_equals_its_definition():
    old, new = Statistics(count=100, values={"a": 50, "b": 50}), Statistics(count=10, values={"a": 8, "b": 2})
    expected = (0.8 - 0.5) * math.log(0.8 / 0.5) + (0.2 - 0.5) * math.log(0.2 / 0.5)
    assert measure_drift(new, old) == measure_drift(old, new) == pytest.approx(expected)


@pytest.mark.parametrize(("mean", "std"), [(0.5, 1.0), (0.0, 1.5), (-0.7, 0.8)])
def test_the_index_of_numbers_approximates_that_of_their_histograms(mean, std):
    rng, edges = np.random.default_rng(0), np.linspace(-12, 12, 241)
    samples = rng.normal(0, 1, 2_000_000), rng.normal(mean, std, 2_000_000)
    p, q = (np.maximum(np.histogram(sample, edges)[0] / len(sample), 1e-7) for sample in samples)
    statistics = [Statistics(count=1, mean=(s.mean(),), std=(s.std(),), min=(0,), max=(0,)) for s in samples]
    assert measure_drift(*statistics) == pytest.approx(float(((p - q) * np.log(p / q)).sum()), rel=0.02)


def test_only_a_constant_that_changes_has_drift():
    one, two = (Statistics(count=1, mean=(m,), std=(0.0,), min=(m,), max=(m,)) for m in (1.0, 2.0))
    assert measure_drift(one, one) == 0
    assert measure_drift(one, two) == math.inf


def test_drift_beyond_the_limits_warns_and_fails():
    old = {"train": Split(rows=1, shards=(), statistics={"kind": KIND})}
    new = {"train": Split(rows=1, shards=(), statistics={"kind": Statistics(count=1, values={"cat": 1, "dog": 1})})}
    index = measure_drift(new["train"].statistics["kind"], KIND)
    assert check_drift("d", old, old, Drift()) == ()
    assert check_drift("d", new, old, Drift(warn=1.0)) == (
        f"split train, column kind: drifted by {index:.3g} (warning from 1 on)",
    )
    with pytest.raises(TrainyardError, match=rf"drifted from its current version(.|\n)*kind    below 1.5  {index:.3g}"):
        check_drift("d", new, old, Drift(fail=1.5))


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
