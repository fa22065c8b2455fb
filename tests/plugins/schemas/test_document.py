"""Documents: what is stored is what is read, and what cannot be read is named."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import ClassVar

import pytest

from trainyard.errors import TrainyardError
from trainyard.files import storage
from trainyard.schemas.document import Document
from trainyard.schemas.specs.evaluate import EvaluateSpec
from trainyard.schemas.specs.export import ExportSpec
from trainyard.schemas.specs.predict import PredictSpec
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainSpec

PLACE = TaskKey(dag_id="d", run_id="r", task_id="t", directory="file:///run")
DOCUMENTS = [
    ExportSpec(task_key=PLACE, prepare="a.b:c", source={"format": "csv", "path": "/x"}, dataset="/b"),
    TrainSpec(task_key=PLACE, recipe="a.b:c", dataset="/b", model="/m", workers=2),
    EvaluateSpec(task_key=PLACE, model="/m", dataset="/b", metrics=("accuracy",)),
    PredictSpec(task_key=PLACE, model="/m", source={"format": "csv"}, keys=("id",), output="/o"),
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.KIND)
def test_a_document_survives_the_trip_through_json(document: Document) -> None:
    assert type(document).from_json(document.to_json()) == document


def changed(**fields: object) -> str:
    return json.dumps(json.loads(DOCUMENTS[1].to_json()) | fields)


def refusal(text: str) -> str:
    with pytest.raises(TrainyardError) as error:
        TrainSpec.from_json(text, origin="spec.json")
    return str(error.value)


@pytest.mark.parametrize(
    ("version", "remedy"), [(7, "Upgrade airflow-trainyard"), (1, "Remove it, and write it again")]
)
def test_another_version_is_refused_by_name(version: int, remedy: str) -> None:
    message = refusal(changed(version=version))
    reads = f"this release of Trainyard reads version {TrainSpec.VERSION}"
    assert f"spec.json is a train spec of version {version}; {reads}. {remedy}" in message


def test_another_kind_of_document_is_refused_by_name() -> None:
    assert "spec.json is a export spec; a train spec was expected" in refusal(DOCUMENTS[0].to_json())


def test_invalid_json_is_refused() -> None:
    assert "spec.json is not JSON" in refusal("{")


def test_json_that_is_not_a_document_is_refused() -> None:
    assert "it has no 'document' and 'version'" in refusal("[]")


def test_a_bad_field_is_named_with_its_value() -> None:
    assert "workers=0: write a number greater than 0" in refusal(changed(workers=0))


def test_an_unknown_field_is_named_and_may_be_that_of_a_newer_release() -> None:
    message = refusal(changed(wrokers=2))
    assert "wrokers is not a known option" in message
    assert message.endswith("A newer release may have written it: upgrade airflow-trainyard.")
    assert "newer release" not in refusal(changed(workers=0))


def test_documents_of_a_directory_that_have_not_changed_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        storage.replace(f"{tmp_path}/{name}.json", Numbers(numbers={"x": 1}, list=()).to_json().encode())
    seen, read = list[str](), storage.read
    monkeypatch.setattr(storage, "read", lambda uri, limit: seen.append(uri) or read(uri, limit))
    assert Numbers.load_all(str(tmp_path)) == [Numbers(numbers={"x": 1}, list=())] * 2
    storage.replace(f"{tmp_path}/b.json", Numbers(numbers={"x": 22}, list=()).to_json().encode())
    first, second = Numbers.load_all(str(tmp_path))
    assert (first.numbers, second.numbers) == ({"x": 1}, {"x": 22})
    assert [Path(uri).name for uri in seen] == ["a.json", "b.json", "b.json"]


def test_a_missing_document_raises_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        TrainSpec.load(f"file://{tmp_path}/none.json")


class Numbers(Document):
    KIND: ClassVar[str] = "numbers"

    numbers: dict[str, float]
    list: tuple[float, ...]


def test_numbers_that_json_does_not_have_are_written_as_texts_and_read_as_numbers() -> None:
    document = Numbers(numbers={"a": math.nan, "b": -math.inf, "c": 0.1}, list=(math.inf, 1.0))
    text = document.to_json()
    fields = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert fields["numbers"] == {"a": "NaN", "b": "-Infinity", "c": 0.1}
    assert repr(Numbers.from_json(text)) == repr(document)
