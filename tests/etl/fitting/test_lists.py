"""Arrays of categories, such as the words of texts, are fitted on the training rows and applied alike everywhere."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from tests.etl.fitting.data import make_spec, run
from trainyard.errors import TrainyardError
from trainyard.etl import DatasetScan, TrainyardEstimator, evaluate, predict
from trainyard.etl.fitting.encoding import index_lists
from trainyard.schemas.specs.source import Source
from trainyard.trainer import Dataset, fit, load_model

WORDS = [*"abcdefgh", "Köln", "köln", "", "🏙️", "null", "x" * 300]
SPLITS = ["train", "train", "validation", "test"]


def make_texts(count: int = 400) -> list[tuple[int, list[Any], list[int], str, str]]:
    """Return rows with words, of which two in three are of the kind of their text, and with numbers of shops."""
    random = np.random.default_rng(0)
    rows = []
    for key in range(count):
        kind, length = key % 3, int(random.integers(9))
        words: list[Any] = [WORDS[(3 * int(random.integers(4)) + kind) % len(WORDS)] for _ in range(length)]
        shops = [2**40 + int(n) for n in random.integers(0, 5, 2)]
        rows.append((key, [*words, None] if key % 50 == 0 else words, shops, f"kind {kind}", SPLITS[key % 4]))
    rows[3][1].append("Bremen")  # in the split `test` alone
    rows[0][1].append("once")
    return rows


ROWS = make_texts()
SCHEMA = "key bigint, words array<string>, shops array<bigint>, kind string, split string"


@pytest.fixture(scope="module")
def source(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Source:
    path = str(tmp_path_factory.mktemp("texts") / "source")
    spark.createDataFrame(ROWS, SCHEMA).repartition(4).write.parquet(path)
    return Source(format="parquet", path=path)


@pytest.fixture(scope="module")
def exported(spark: Any, source: Source, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    """The dataset and the result of an export with words of two training rows or more."""
    directory = tmp_path_factory.mktemp("lists")
    categories = {"words": {"min_count": 2}, "shops": {}}
    spec = make_spec(directory, source, categories=categories, variable_length=["words"], label="kind")
    return spec.dataset, run(spark, spec)


@pytest.fixture(scope="module")
def model(exported: tuple[str, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("model"))
    fit("tests.etl.fitting.recipes:kind_of_words", dataset=exported[0], model=uri, epochs=10, batch_size=20)
    return uri


pytestmark = pytest.mark.spark


def test_indices_of_words_are_those_of_the_words_that_scikit_learn_counts_in_training(spark, exported):
    texts = [[word for word in words if word is not None] for _, words, _, _, split in ROWS if split == "train"]
    vectorizer = CountVectorizer(analyzer=lambda words: words)
    totals = vectorizer.fit_transform(texts).sum(0).A1
    counts = {word: totals[n] for word, n in vectorizer.vocabulary_.items() if totals[n] >= 2}
    order = sorted(counts, key=lambda word: (-counts[word], word.encode()))
    found = {row.key: row for row in spark.read.format("trainyard").load(exported[0]).collect()}
    for key, words, _, _, _ in ROWS:
        assert found[key].words == [order.index(word) + 1 if word in counts else 0 for word in words]
    assert "once" not in counts and found[0].words[-1] == 0


def test_arrays_of_one_length_are_tensors_of_indices(exported):
    shops = Counter(shop for _, _, shops, _, split in ROWS if split == "train" for shop in shops)
    order = sorted(shops, key=lambda shop: (-shops[shop], str(shop)))
    expected = {key: [order.index(shop) + 1 for shop in shops] for key, _, shops, _, split in ROWS if split == "train"}
    found = {}
    for batch in Dataset(exported[0], batch_size=50):
        found |= dict(zip(batch["key"].tolist(), batch["shops"].tolist(), strict=True))
    assert found == expected


def test_the_share_of_rows_with_an_unseen_element_is_in_the_result(exported):
    known = Counter(word for _, words, _, _, split in ROWS if split == "train" for word in words if word is not None)
    unseen = [any(known.get(word, 0) < 2 for word in words) for _, words, _, _, _ in ROWS]
    assert exported[1].unseen["words"] == pytest.approx(sum(unseen) / len(unseen)) and sum(unseen) > 5


def test_a_model_takes_the_words_themselves_in_evaluations_predictions_and_python(spark, exported, source, model):
    rows = spark.read.parquet(source.path)
    test = rows.where("split = 'test'").drop("split")
    of_words = evaluate(test, model, ["accuracy"])
    of_indices = evaluate(DatasetScan(spark, exported[0], {"split": "test"}), model, ["accuracy"])
    assert of_words.model.metrics == of_indices.model.metrics and of_words.model.metrics["accuracy"] > 0.8
    predicted = {row.key: row["class"] for row in predict(test, model, ["key"]).collect()}
    words = {key: words for key, words, _, _, split in ROWS if split == "test"}
    here = load_model(model).predict({"words": list(words.values())})["class"]
    assert dict(zip(words, here.tolist(), strict=True)) == predicted
    assert len(set(predicted.values())) == 3 and predicted[3].startswith("kind ")


def test_rows_of_single_values_are_refused_by_the_column(spark, model):
    rows = spark.createDataFrame([(1, "a")], "key bigint, words string")
    with pytest.raises(TrainyardError, match=r"have string in column 'words', but .* categories of type array<string>"):
        predict(rows, model, ["key"])
    for wrong in (None, "a b", float("nan"), 3):
        with pytest.raises(
            TrainyardError, match=r"column 'words' has .* in row 1; pass a list of values, which may be"
        ):
            load_model(model).predict({"words": [["a"], wrong]})


def test_an_array_is_no_label(spark, source, tmp_path):
    with pytest.raises(TrainyardError, match=r"label names the column 'words' of type array<string>, and values of"):
        run(spark, make_spec(tmp_path, source, label="words"))


@pytest.mark.full
def test_an_estimator_trains_on_words(spark, source, tmp_path):
    rows = spark.read.parquet(source.path).drop("split")
    estimator = TrainyardEstimator(
        recipe="tests.etl.fitting.recipes:kind_of_words", categories=["words"], label="kind",
        variable_length=["words"], epochs=2, batch_size=20, workers=1, store=str(tmp_path),
    )  # fmt: skip
    assert estimator.fit(rows).transform(rows).count() == len(ROWS)


texts = st.one_of(st.none(), st.lists(st.one_of(st.none(), st.sampled_from([*WORDS, "other"]))))


@given(st.lists(texts, max_size=40), st.integers(0, 5), st.integers(0, 1))
def test_lists_of_any_length_nulls_and_slices_have_the_positions_of_their_texts(rows, begin, first):
    positions = {word: position for position, word in enumerate(WORDS, first)}
    found = index_lists(pa.array(rows, pa.list_(pa.string()))[begin:], positions)
    assert found.to_pylist() == [
        None if row is None else [positions.get(word, 0) for word in row] for row in rows[begin:]
    ]
