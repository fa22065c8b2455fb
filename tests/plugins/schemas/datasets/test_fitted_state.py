"""Vocabularies give values the indices that encoders of scikit-learn give them, and states are what was stored."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import LabelEncoder, OrdinalEncoder

from trainyard.errors import TrainyardError
from trainyard.schemas.datasets import fitted_state
from trainyard.schemas.datasets.fitted_state import FittedState, Vocabulary

TEXTS = st.lists(st.text(max_size=5) | st.sampled_from(["unseen", '"', " a", "a ", "ä", "🏙️", "null"]), max_size=20)
CITIES = FittedState(
    options={"categories": {"city": {}}}, vocabularies={"city": Vocabulary(type="string", values=("A",))}
)


@given(st.lists(st.text(max_size=5), min_size=1, max_size=9, unique=True), TEXTS)
def test_the_indices_of_categories_are_those_of_an_ordinal_encoder(values, texts):
    encoder = OrdinalEncoder(categories=[values], handle_unknown="use_encoded_value", unknown_value=-1)
    encoder.fit([[value] for value in values])
    expected = [int(index) + 1 for index in encoder.transform([[t] for t in texts])[:, 0]] if texts else []
    vocabulary = Vocabulary(type="string", values=tuple(values))
    assert vocabulary.encode("city", texts) == expected
    assert vocabulary.encode("city", [None, float("nan")]) == [0, 0]
    assert len(set(vocabulary.names)) == vocabulary.size == len(values) + 1


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=9))
def test_the_classes_of_integers_are_those_of_a_label_encoder(labels):
    classes = sorted(set(labels))
    vocabulary = Vocabulary(type="integer", values=tuple(map(str, classes)), is_label=True)
    encoder = LabelEncoder().fit(np.array(labels))
    assert vocabulary.encode("label", labels) == encoder.transform(np.array(labels)).tolist()
    assert vocabulary.encode("label", np.array(labels)) == vocabulary.encode("label", labels)


def test_booleans_of_python_and_numpy_are_the_texts_that_spark_writes():
    vocabulary = Vocabulary(type="boolean", values=("true", "false"))
    assert vocabulary.encode("open", [True, False, None]) == [1, 2, 0]
    assert vocabulary.encode("open", np.array([True, False])) == [1, 2]


def test_a_label_that_is_no_class_is_named():
    with pytest.raises(
        TrainyardError, match="the label 'kind' has the value 'pear', which no row of the split 'train'"
    ):
        Vocabulary(type="string", values=("apple",), is_label=True).encode("kind", ["apple", "pear"])


def test_a_state_that_was_changed_or_removed_is_refused(tmp_path):
    reference = CITIES.reference
    fitted_state.save(str(tmp_path), CITIES)
    path = tmp_path / reference.path
    assert fitted_state.read(str(path), reference).to_json() == CITIES.to_json()
    path.write_text(path.read_text().replace('"A"', '"B"'))
    with pytest.raises(TrainyardError, match="was changed: its sha256 is not"):
        fitted_state.read(str(path), reference)
    path.unlink()
    with pytest.raises(TrainyardError, match="is missing"):
        fitted_state.read(str(path), reference)


def test_a_state_that_an_older_release_wrote_stays_what_it_was(tmp_path):
    """A field that it did not have must not change the checksum that manifests have."""
    state = FittedState(options={}, vocabularies={"city": Vocabulary(type="string", values=("a", "b"))})
    fields = json.loads(state.to_json())
    del fields["vocabularies"]["city"]["is_list"]
    text = json.dumps(fields).encode()
    reference = state.reference.model_copy(update={"sha256": hashlib.sha256(text).hexdigest()})
    (tmp_path / "fitted").mkdir()
    (tmp_path / reference.path).write_bytes(text)
    read = fitted_state.read(str(tmp_path / reference.path), reference)
    assert read.reference == reference != state.reference and read.vocabularies == state.vocabularies
    fitted_state.save(str(tmp_path), read)
    assert (tmp_path / reference.path).read_bytes() == text


def test_a_vocabulary_is_recognized_by_its_values_and_their_type():
    one = Vocabulary(type="string", values=("1", "2"))
    others = [
        Vocabulary(type="string", values=("2", "1")),
        Vocabulary(type="integer", values=("1", "2")),
        Vocabulary(type="string", values=("1", "2"), is_label=True),
    ]
    assert one.sha256 == Vocabulary.model_validate(json.loads(one.model_dump_json())).sha256
    assert len({each.sha256 for each in (one, *others)}) == 4


def test_values_of_pandas_have_the_indices_of_the_export() -> None:
    """A column of integers with a null is one of floats in pandas, and its nulls may be NA."""
    stores = Vocabulary(type="integer", values=("7", "3"))
    assert stores.encode("store", pd.Series([7, 3, None])) == [1, 2, 0]
    assert stores.encode("store", pd.Series([7, None, 3], dtype="Int64")) == [1, 0, 2]
    assert stores.encode("store", [7.5, np.float64(3)]) == [0, 2]
    assert Vocabulary(type="string", values=("a",)).encode("x", pd.Series(["a", None], dtype="string")) == [1, 0]
    kinds = Vocabulary(type="integer", values=("0", "1"), is_label=True)
    assert kinds.encode("kind", pd.Series([1.0, 0.0])) == [1, 0]
    flags = Vocabulary(type="boolean", values=("false", "true"))
    assert flags.encode("flag", [True, np.True_, 0.0, None]) == [2, 2, 1, 0]
