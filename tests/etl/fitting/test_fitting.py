"""What is fitted once is used by later exports, until it is fitted anew."""

from __future__ import annotations

import pytest

from tests.etl.fitting.data import make_spec, run, write_source
from tests.etl.models import make_log, make_task_key
from trainyard.errors import TrainyardError
from trainyard.etl import predict
from trainyard.etl.jobs import predict as job
from trainyard.schemas.datasets import versions
from trainyard.schemas.datasets.manifest import read_current
from trainyard.schemas.specs.predict import PredictSpec
from trainyard.schemas.specs.splits import FRACTIONS
from trainyard.trainer import fit

pytestmark = pytest.mark.spark


def make_day(cities: str, kinds: str = "ab", split: str = "train") -> list[tuple]:
    """Return a row for each letter of `cities`."""
    return [(i, city, i, True, kinds[i % len(kinds)], split) for i, city in enumerate(cities)]


def write_day(spark, tmp_path, name, *rows):
    return write_source(spark, tmp_path / name, [row for part in rows for row in part])


def read_cities(spark, spec):
    return sorted(row.city for row in spark.read.format("trainyard").load(spec.dataset).collect())


def test_partitions_and_versions_use_what_was_fitted_first_until_it_is_fitted_anew(spark, tmp_path):
    first = write_day(spark, tmp_path, "first", make_day("AAABBC"))
    second = write_day(spark, tmp_path, "second", make_day("CCCCD"))
    one = make_spec(tmp_path, first, categories=["city"], partition="1")
    run(spark, one)
    fitted = read_current(one.dataset).fitted
    added = run(spark, make_spec(tmp_path, second, categories=["city"], partition="2"))
    assert read_cities(spark, one) == sorted([1, 1, 1, 2, 2, 3, 3, 3, 3, 3, 0])
    assert added.unseen == {"city": 0.2}
    assert read_current(one.dataset).fitted == fitted

    with pytest.raises(TrainyardError, match=r"refit=True fits anew, but .* has other partitions, such as '1'"):
        run(spark, make_spec(tmp_path, second, categories=["city"], partition="2", refit=True))
    with pytest.raises(TrainyardError, match="categories, label, fit or fit_params differ, and so fit anew"):
        run(spark, make_spec(tmp_path, second, categories=["city", "store"], partition="2"))
    with pytest.raises(TrainyardError, match="its categories, label or state of fit= are not those of version 2"):
        numbers = {"prepare": "prepares:with_numbers", "prepare_params": {"size": False}}
        run(spark, make_spec(tmp_path, second, **numbers, partition="2"))

    whole = {"categories": ["city"], "dataset": str(tmp_path / "whole")}
    run(spark, make_spec(tmp_path, first, **whole))
    run(spark, again := make_spec(tmp_path, second, **whole))
    assert read_cities(spark, again) == [0, 3, 3, 3, 3]
    run(spark, make_spec(tmp_path, second, **whole, refit=True, drift={"fail": 0.1}))
    assert read_cities(spark, again) == [1, 1, 1, 1, 2]
    assert len(list((tmp_path / "whole" / "fitted").iterdir())) == 2
    versions.expire(again.dataset, keep=1, days=0)
    left = [path.name for path in (tmp_path / "whole" / "fitted").iterdir()]
    assert left == [f"{read_current(again.dataset).fitted.sha256}.json"]
    assert versions.unreferenced(again.dataset) == []


def test_rare_and_many_values_share_the_index_of_unseen_ones(spark, tmp_path):
    source = write_day(spark, tmp_path, "source", make_day("AAABBBCCD"))
    for options, expected in (
        ({"min_count": 2}, [0, 1, 1, 1, 2, 2, 2, 3, 3]),
        ({"min_count": 2, "max_size": 1}, [0, 0, 0, 0, 0, 0, 1, 1, 1]),
    ):
        run(spark, spec := make_spec(tmp_path, source, categories={"city": options}))
        assert read_cities(spark, spec) == expected


def test_a_label_that_no_training_row_has_is_refused(spark, tmp_path):
    source = write_day(spark, tmp_path, "source", make_day("AB"), make_day("A", "c", "test"))
    with pytest.raises(TrainyardError, match=r"the label 'kind' has the value 'c', which no row of the split 'train'"):
        run(spark, make_spec(tmp_path, source, label="kind"))
    assert not (tmp_path / "dataset" / "manifest.json").exists()


def test_a_label_of_integers_is_in_the_order_of_its_numbers(spark, tmp_path):
    rows = [(i, "A", store, True, "a", "train") for i, store in enumerate([100, -5, 20, 3])]
    run(spark, spec := make_spec(tmp_path, write_source(spark, tmp_path / "source", rows), label="store"))
    stored = spark.read.format("trainyard").load(spec.dataset).collect()
    assert [row.store for row in sorted(stored, key=lambda row: row.key)] == [3, 0, 2, 1]


def test_columns_without_values_or_with_too_many_are_refused(spark, tmp_path, monkeypatch):
    training, test = write_day(spark, tmp_path, "train", make_day("ABCD")), make_day("A", split="test")
    monkeypatch.setattr("trainyard.etl.fitting.vocabulary.MAX_VALUES", 3)
    with pytest.raises(TrainyardError, match=r"column 'city' has 4 values in the split 'train'.*'max_size': 100_000"):
        run(spark, make_spec(tmp_path, training, categories=["city"]))
    with pytest.raises(TrainyardError, match="column 'city' has no values in the split 'train'"):
        run(spark, make_spec(tmp_path, write_day(spark, tmp_path, "test", test), categories=["city"], partition="1"))
    with pytest.raises(TrainyardError, match="categories names the column 'town', which does not exist"):
        run(spark, make_spec(tmp_path, training, categories=["town"]))
    with pytest.raises(TrainyardError, match="label names the column 'size' of type double"):
        run(spark, make_spec(tmp_path, training, prepare="prepares:with_numbers", label="size"))


def test_prepare_gets_what_fit_returned_for_the_training_rows_in_exports_and_predictions(spark, tmp_path):
    first = write_day(spark, tmp_path, "first", make_day("ABCD"), make_day("ABCDEFGHIJ", split="validation"))
    options = {"prepare": "prepares:scaled", "fit": "prepares:fit_mean", "fit_params": {"column": "store"}}
    spec = make_spec(tmp_path, first, **options, partition="1")
    run(spark, spec)
    stored = spark.read.format("trainyard").option("split", "train").load(spec.dataset).collect()
    assert sorted(row.x for row in stored) == [-1.5, -0.5, 0.5, 1.5]
    second = write_day(spark, tmp_path, "second", make_day("ABCDEFGH"))
    run(spark, make_spec(tmp_path, second, **options, partition="2"))
    stored = spark.read.format("trainyard").option("split", "train").load(spec.dataset).collect()
    assert max(row.x for row in stored) == 5.5

    fit(
        "tests.etl.fitting.recipes:passing",
        dataset=spec.dataset,
        model=(model := str(tmp_path / "model")),
        batch_size=4,
    )
    spec = PredictSpec(
        task_key=make_task_key(tmp_path), model=model, source=second, prepare="prepares:scaled", keys=("key",),
        output=str(tmp_path / "predictions"),
    )  # fmt: skip
    job.run(spark, spec, make_log(spec))
    predicted = {row.key: row.prediction for row in spark.read.parquet(spec.output).collect()}
    assert predicted == {i: i - 1.5 for i in range(8)}
    with pytest.raises(TrainyardError, match="prepare='prepares:rows' has no parameter 'state'"):
        job.run(spark, spec.model_copy(update={"prepare": "prepares:rows"}), make_log(spec))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"fit": "prepares:fit_set", "prepare": "prepares:scaled"},
            "fit='prepares:fit_set' returned what JSON",
        ),
        ({"fit": "prepares:fit_mean"}, "prepare='prepares:rows' has no parameter 'state'"),
    ],
)
def test_what_cannot_be_stored_or_used_is_refused(spark, tmp_path, options, message):
    source = write_day(spark, tmp_path, "source", make_day("AB"))
    with pytest.raises(TrainyardError, match=message):
        run(spark, make_spec(tmp_path, source, **options))


def test_a_model_does_not_take_the_indices_of_a_dataset_that_was_fitted_anew(spark, tmp_path):
    first = write_day(spark, tmp_path, "first", make_day("AAAABBBC", "ab"))
    second = write_day(spark, tmp_path, "second", make_day("CCCCCB", "ab"))
    run(spark, spec := make_spec(tmp_path, first, categories=["city"]))
    fit(
        "tests.etl.fitting.recipes:cities", dataset=spec.dataset, model=(model := str(tmp_path / "model")), batch_size=4
    )
    run(spark, make_spec(tmp_path, second, categories=["city"], refit=True))
    anew = spark.read.format("trainyard").load(spec.dataset)
    with pytest.raises(TrainyardError, match="indices of other values in column 'city' than the model was trained on"):
        predict(anew, model)
    before = spark.read.format("trainyard").option("version", "1").load(spec.dataset)
    assert predict(before, model).count() == 8


def test_strata_and_folds_are_those_of_values_and_names_may_have_any_character(spark, tmp_path):
    source = write_day(spark, tmp_path, "source", make_day("ABC" * 40, "xyz"))
    spec = make_spec(
        tmp_path, source, prepare="prepares:named_oddly", splits=FRACTIONS, folds=2, stratify="kind", label="kind",
        categories={"stadt.`name": {"min_count": 2}},
    )  # fmt: skip
    run(spark, spec)
    dataset = read_current(spec.dataset)
    assert dataset.fitted.sizes == {"stadt.`name": 4, "kind": 3}
    for split in ("fold-1", "fold-2", "test"):
        counts = dataset.split(split).statistics["kind"].values
        assert counts.keys() == {"0", "1", "2"} and max(counts.values()) - min(counts.values()) <= 1
