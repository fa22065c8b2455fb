"""Documents: what is stored is what is read, and what cannot be read is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainyard.contract.document import Document
from trainyard.contract.errors import TrainyardError
from trainyard.contract.spec import EvaluateSpec, ExportSpec, Place, PredictSpec, TrainSpec

PLACE = Place(dag_id="d", run_id="r", task_id="t", directory="file:///run")
DOCUMENTS = [
    ExportSpec(place=PLACE, prepare="a.b:c", source={"format": "csv", "path": "/x"}, batches="/b"),
    TrainSpec(place=PLACE, recipe="a.b:c", batches="/b", model="/m", workers=2),
    EvaluateSpec(place=PLACE, model="/m", batches="/b", metrics=("accuracy",)),
    PredictSpec(place=PLACE, model="/m", source={"format": "csv"}, keys=("id",), output="/o"),
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


def test_a_newer_version_is_refused_by_name() -> None:
    message = refusal(changed(version=7))
    assert "spec.json is a train spec of version 7" in message and "up to 1" in message and "Upgrade" in message


def test_another_kind_of_document_is_refused_by_name() -> None:
    assert "spec.json holds a export spec; a train spec was expected" in refusal(DOCUMENTS[0].to_json())


def test_what_is_no_json_is_refused() -> None:
    assert "spec.json is not JSON" in refusal("{")


def test_what_is_no_document_is_refused() -> None:
    assert "it has no 'document' and 'version'" in refusal("[]")


def test_a_bad_field_is_named_with_its_value() -> None:
    assert "workers=0: Input should be greater than 0" in refusal(changed(workers=0))


def test_an_unknown_field_is_named() -> None:
    assert "wrokers is not a known option" in refusal(changed(wrokers=2))


def test_a_document_that_is_not_there_raises_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        TrainSpec.load(f"file://{tmp_path}/none.json")
