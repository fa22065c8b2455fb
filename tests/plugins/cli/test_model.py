"""`trainyard model` lists, compares and rolls back models, and finds their recipes in the DAGs folder."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import torch

from tests.plugins.evaluations import evaluation, scores, write_model
from tests.trainer import datasets
from trainyard.cli.main import main
from trainyard.files import storage, uris
from trainyard.models import ensembles, promotion
from trainyard.models.promotion import Champion
from trainyard.schemas import model_artifact
from trainyard.schemas.datasets.manifest import Column
from trainyard.schemas.evaluation import Scores
from trainyard.schemas.promotion import Promotion, Rule
from trainyard.trainer.loop.fit import fit

CHAMPION_RULE = Rule(metric="accuracy")
RECIPE = "from tests.trainer.recipes import linear\n"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model whose recipe is in the package `flights` of the folder `dags`, which is not on the path of imports."""
    (tmp_path / "dags" / "flights").mkdir(parents=True)
    (tmp_path / "dags" / "flights" / "recipe.py").write_text(RECIPE)
    dataset = datasets.write(tmp_path / "dataset", {"train": datasets.blobs(100)})
    uri = str(tmp_path / "model")
    fit("tests.trainer.recipes:linear", dataset=dataset, model=uri, epochs=1, batch_size=50)
    artifact = model_artifact.read_current(uri).model_copy(update={"recipe": "flights.recipe:linear"})
    storage.replace(f"{uri}/model.json", artifact.to_json().encode())
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("flights", "flights.recipe"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return uri


def test_a_recipe_in_the_dags_folder_of_airflow_is_found(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow import settings

    monkeypatch.setattr(settings, "DAGS_FOLDER", str(tmp_path / "dags"))
    assert main(["model", "export", model, "pt2", str(tmp_path / "model.pt2")]) == 0
    assert torch.export.load(tmp_path / "model.pt2")


def test_a_recipe_in_another_folder_is_found_by_an_option(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model", "export", model, "pt2", str(tmp_path / "model.pt2")]) == 1
    error = capsys.readouterr().err
    assert "No module named 'flights'" in error
    assert error.endswith("If it is in a folder of DAGs, write the folder as --dags-folder.\n")
    folder = os.path.relpath(tmp_path / "dags")
    assert main(["model", "export", model, "pt2", str(tmp_path / "model.pt2"), "--dags-folder", folder]) == 0


@pytest.fixture
def champion(tmp_path: Path) -> Champion:
    """A champion that was promoted after another one."""
    uri = str(tmp_path / "champion")
    for weights in (b"first", b"second"):
        artifact = write_model(tmp_path / "m", weights, {"accuracy": 0.5})
        evaluated = evaluation(Scores(**scores(str(tmp_path / "m"), artifact.weights_sha256, accuracy=0.9)))
        promotion.publish(evaluated, promotion.read_champion(uri), CHAMPION_RULE, f"{weights.decode()} is better")
    return promotion.read_champion(uri)


def test_versions_are_listed_with_why_each_was_promoted(champion: Champion, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "versions", champion.uri]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    (first,), (second,) = ([line for line in lines if f"{name} is better" in line] for name in ("first", "second"))
    assert "  yes  " in second and "  yes  " not in first
    assert "accuracy 0.5" in first and first.startswith(b"first".hex())


def test_the_models_of_a_storage_are_listed(
    champion: Champion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_OURS", json.dumps({"conn_type": "trainyard", "extra": {"storage": tmp_path.as_uri()}})
    )
    assert main(["model", "list", "--conn-id", "ours", "-o", "json"]) == 0
    rows = {row["model"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == ["champion", "m"]
    assert rows["champion"]["version"] == model_artifact.read_current(champion.uri).folder
    assert rows["m"]["metrics"] == {"accuracy": 0.5}


def test_what_differs_between_two_models_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = write_model(tmp_path / "m", b"first", {"accuracy": 0.5, "loss": 1.0})
    write_model(tmp_path / "m", b"second", {"accuracy": 0.75, "loss": 1.0})
    write_model(tmp_path / "n", b"third", {"loss": 1.0})
    assert main(["model", "diff", f"{tmp_path}/m@{old.folder}", "-o", "json"]) == 0
    found = {row["field"]: (row["old"], row["new"]) for row in json.loads(capsys.readouterr().out)}
    assert found["metrics.accuracy"] == (0.5, 0.75) and "metrics.loss" not in found and "recipe" not in found
    assert main(["model", "diff", f"{tmp_path}/m@{old.folder}", f"{tmp_path}/n", "-o", "json"]) == 0
    found = {row["field"]: (row["old"], row["new"]) for row in json.loads(capsys.readouterr().out)}
    assert found["metrics.accuracy"] == (0.5, None)


def test_what_differs_between_two_ensembles_is_listed_by_member(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    label = Column(name="kind", kind="tensor", type="int64", shape=())
    members = [
        (str(tmp_path / name), write_model(tmp_path / name, name.encode()).model_copy(update={"label": label}))
        for name in "abc"
    ]
    for name, chosen in (("both", members[:2]), ("others", members[1:])):
        ensembles.save(str(tmp_path / name), ensembles.build(chosen))
    assert main(["model", "diff", f"{tmp_path}/both", f"{tmp_path}/others", "-o", "json"]) == 0
    rows = {row["field"]: (row["old"], row["new"]) for row in json.loads(capsys.readouterr().out)}
    assert rows["ensemble.members.0.uri"] == (f"{tmp_path}/a", f"{tmp_path}/b")
    assert "ensemble.members.1.artifact.weights_sha256" in rows
    assert not [field for field in rows if "weights." in field or field.endswith("weights")]
    assert main(["model", "diff", f"{tmp_path}/both", f"{tmp_path}/others"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) < 300


def test_a_champion_is_rolled_back_to_an_earlier_one(champion: Champion, capsys: pytest.CaptureFixture[str]) -> None:
    earlier = b"first".hex()
    assert main(["model", "rollback", f"{champion.uri}@{earlier}"]) == 0
    current = model_artifact.read_current(champion.uri)
    assert current.folder.startswith(earlier)
    assert f"rolled back from {str(champion.weights_sha256)[:16]}" in capsys.readouterr().out
    record = Promotion.load(uris.join(champion.uri, current.folder, "promotion.json"))
    assert (record.weights_sha256, record.why[:11]) == (current.weights_sha256, "rolled back")
    assert [one.why[:11] for one in promotion.list_promotions(champion.uri)] == [
        "first is be", "second is b", "rolled back",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("", "names no version; write "),
        ("@0123", "has no version 0123; it has "),
        (f"@{b'second'.hex()}", "already"),
    ],
)
def test_a_version_that_cannot_become_the_champion_is_refused(
    champion: Champion, capsys: pytest.CaptureFixture[str], version: str, message: str
) -> None:
    assert main(["model", "rollback", f"{champion.uri}{version}"]) > 0
    assert message in capsys.readouterr().err
    assert promotion.read_champion(champion.uri) == champion


def test_a_model_that_was_never_promoted_is_not_rolled_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, _ = (write_model(tmp_path, weights).folder for weights in (b"first", b"second"))
    assert main(["model", "rollback", f"{tmp_path}@{first}"]) == 1
    assert f"is not a champion: its version {first} was never promoted" in capsys.readouterr().err
