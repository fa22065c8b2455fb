"""What is expected of data is held against its statistics, and drift is measured, before anybody sees the data."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.errors import TrainyardError, reason
from trainyard.etl.datasource.quality import compare, drift, refuse
from trainyard.schemas import manifest, versions
from trainyard.schemas.manifest import Split, Statistics
from trainyard.schemas.specs.source import Drift, Expectation

PRICE = Statistics(count=90, nulls=10, mean=(5.0,), std=(2.0,), min=(-1.0,), max=(9.5,))
KIND = Statistics(count=100, values={"cat": 97, "dog": 3})
TAGS = Statistics(count=100)


def complaints(column: str, found: Statistics, **expected: object) -> str:
    split = Split(rows=100, shards=(), statistics={column: found})
    try:
        refuse("s/dataset", {"train": split}, {column: Expectation(**expected)})  # type: ignore[arg-type]
    except TrainyardError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("column", "figures", "expected"),
    [
        ("price", PRICE, {"min": -1, "max": 9.5, "nulls": 0.1}),
        ("kind", KIND, {"values": ["cat", "dog"], "rows_per_value": 3}),
        ("kind", KIND, {"min": 0, "nulls": 0}),
    ],
)
def test_data_as_expected_is_accepted(column, figures, expected):
    assert complaints(column, figures, **expected) == ""


@pytest.mark.parametrize(
    ("column", "figures", "expected", "row"),
    [
        ("price", PRICE, {"min": 0}, "train  price   min 0     -1"),
        ("price", PRICE, {"max": 9}, "train  price   max 9     9.5"),
        ("price", PRICE, {"nulls": 0.05}, "train  price   nulls at most 0.05  0.1 (10 of 100)"),
        ("kind", KIND, {"values": ["cat"]}, "train  kind    one of cat  dog (3 rows)"),
        ("kind", KIND, {"rows_per_value": 5}, "train  kind    5 rows of 'dog'  3"),
        ("kind", KIND, {"values": ["cat", "dog", "cow"], "rows_per_value": 1}, "train  kind    1 rows of 'cow'  0"),
        ("tags", TAGS, {"values": ["a"]}, "train  tags    a few values  more than 1,000 values, or no scalar"),
    ],
)
def test_what_is_not_is_told_in_a_table(column, figures, expected, row):
    told = complaints(column, figures, **expected)
    assert told.startswith("the data for s/dataset is not as expected, and nothing of it is kept:\nsplit")
    assert row in told


def test_a_column_that_is_not_there_is_named():
    split = Split(rows=1, shards=(), statistics={"price": PRICE})
    with pytest.raises(TrainyardError, match="expect names the column 'cost', which d does not have; it has price"):
        refuse("d", {"train": split}, {"cost": Expectation(min=0)})


def test_all_of_it_is_told_at_once():
    told = complaints("price", PRICE, min=0, max=9, nulls=0)
    assert len(told.splitlines()) == 6


@given(st.dictionaries(st.sampled_from("abcde"), st.integers(1, 1000), min_size=1), st.integers(1, 9))
def test_the_same_shares_have_not_drifted(counts, times):
    more = {value: count * times for value, count in counts.items()}
    assert drift(Statistics(count=1, values=more), Statistics(count=1, values=counts)) == pytest.approx(0, abs=1e-9)


def test_the_index_of_values_is_the_textbooks():
    old, new = Statistics(count=100, values={"a": 50, "b": 50}), Statistics(count=10, values={"a": 8, "b": 2})
    expected = (0.8 - 0.5) * math.log(0.8 / 0.5) + (0.2 - 0.5) * math.log(0.2 / 0.5)
    assert drift(new, old) == drift(old, new) == pytest.approx(expected)


@pytest.mark.parametrize(("mean", "std"), [(0.5, 1.0), (0.0, 1.5), (-0.7, 0.8)])
def test_the_index_of_numbers_is_that_of_their_histograms(mean, std):
    rng, edges = np.random.default_rng(0), np.linspace(-12, 12, 241)
    samples = rng.normal(0, 1, 2_000_000), rng.normal(mean, std, 2_000_000)
    p, q = (np.maximum(np.histogram(sample, edges)[0] / len(sample), 1e-7) for sample in samples)
    figures = [Statistics(count=1, mean=(s.mean(),), std=(s.std(),), min=(0,), max=(0,)) for s in samples]
    assert drift(*figures) == pytest.approx(float(((p - q) * np.log(p / q)).sum()), rel=0.02)


def test_a_constant_that_stays_has_not_drifted_and_one_that_moves_has():
    one, two = (Statistics(count=1, mean=(m,), std=(0.0,), min=(m,), max=(m,)) for m in (1.0, 2.0))
    assert drift(one, one) == 0
    assert drift(one, two) == math.inf


def test_limits_warn_and_fail():
    old = {"train": Split(rows=1, shards=(), statistics={"kind": KIND})}
    new = {"train": Split(rows=1, shards=(), statistics={"kind": Statistics(count=1, values={"cat": 1, "dog": 1})})}
    far = drift(new["train"].statistics["kind"], KIND)
    assert compare("d", old, old, Drift()) == ()
    assert compare("d", new, old, Drift(warn=1.0)) == (
        f"split train, column kind: drifted by {far:.3g} (a warning from 1 on)",
    )
    with pytest.raises(TrainyardError, match=rf"has drifted from what is there(.|\n)*kind    below 1.5  {far:.3g}"):
        compare("d", new, old, Drift(fail=1.5))


@pytest.mark.spark
def test_nothing_of_what_is_refused_is_kept(spark, tmp_path):
    def write(rows, **options):
        chosen = {name: json.dumps(value) for name, value in options.items()}
        rows.write.format("trainyard").mode("overwrite").options(**chosen).save(str(tmp_path / "d"))
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
