"""The task that makes one model of several."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Asset
from airflow.sdk.execution_time.context import OutletEventAccessors

from tests.plugins.contexts import make_context
from tests.plugins.evaluations import evaluation, scores, write_model
from trainyard.compat import AirflowException
from trainyard.errors import TrainyardError
from trainyard.files import storage
from trainyard.jobs.lineage import describe_ensemble
from trainyard.jobs.options.locations import recipes_of_models
from trainyard.models import promotion
from trainyard.operators import EnsembleOperator
from trainyard.planning.paths import run_directory
from trainyard.report.stages import describe_result
from trainyard.schemas import model_artifact
from trainyard.schemas.datasets.manifest import Column
from trainyard.schemas.evaluation import Scores
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.schemas.promotion import Rule
from trainyard.schemas.runs import run_record
from trainyard.schemas.specs.evaluate import EvaluateSpec


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the connection says that things are stored."""
    extra = {"storage": tmp_path.as_uri()}
    monkeypatch.setenv("AIRFLOW_CONN_TRAINYARD_DEFAULT", json.dumps({"conn_type": "trainyard", "extra": extra}))
    return tmp_path


def write(root: Path, name: str, weights: bytes = b"", **fields: Any) -> ModelArtifact:
    """Write a model with a label."""
    label = Column(name="kind", kind="tensor", type="int64", shape=())
    artifact = write_model(root / name, weights or name.encode())
    artifact = artifact.model_copy(update={"label": label, "recipe": f"{name}.recipe:network"} | fields)
    for path in (f"{artifact.folder}/model.json", "model.json"):
        storage.replace(f"{root / name}/{path}", artifact.to_json().encode())
    return artifact


def run(**options: Any) -> dict[str, Any]:
    task = EnsembleOperator(**({"task_id": "both", "models": ["a", "b"], "model": "m/both"} | options))
    return task.execute(make_context(task))


def test_an_ensemble_has_copies_of_its_members_and_is_a_result_like_a_training(root: Path) -> None:
    members = [write(root, name) for name in "ab"]
    result = run(weights=[3, 1])
    artifact = model_artifact.read_current(f"{root}/m/both")
    assert result == {
        "uri": f"{root.as_uri()}/m/both", "weights_sha256": artifact.weights_sha256,
        "members": [f"{root.as_uri()}/{name}@{one.folder}" for name, one in zip("ab", members, strict=True)],
        "by": "mean",
    }  # fmt: skip
    assert artifact.ensemble and [member.weight for member in artifact.ensemble.members] == [0.75, 0.25]
    assert [storage.read(f"{root}/m/both/{file.path}") for file in artifact.weights] == [b"a", b"b"]
    assert [item.version for item in describe_ensemble(result["members"], result["uri"]).inputs] == [
        member.weights_sha256 for member in members
    ]
    card = storage.read(f"{root}/m/both/{artifact.folder}/card.md").decode()
    assert "The mean of 2 models." in card and f"| {root.as_uri()}/a | {members[0].folder} | 0.75 |" in card


def test_a_run_record_names_the_members(root: Path) -> None:
    members = [write(root, name) for name in "ab"]
    result = run(by="vote")
    [record] = run_record.read_run(run_directory(root.as_uri(), "toy", "r1"))
    assert (record.output, record.application, record.status) == (result, "", "succeeded")
    assert describe_result(record) == f"vote of a@{members[0].folder}, b@{members[1].folder}"


def test_results_of_other_tasks_set_the_versions(root: Path) -> None:
    first, other = write(root, "a", b"first"), write(root, "b")
    write(root, "a", b"second")
    results = [{"uri": f"{root}/{name}", "weights_sha256": one.weights_sha256, "epochs": 3}
               for name, one in (("a", first), ("b", other))]  # fmt: skip
    assert run(models=results)["members"][0].endswith(f"/a@{first.folder}")
    assert run(models=[f"a@{first.folder[:6]}", "b"])["members"][0].endswith(f"/a@{first.folder}")


def run_mapped(**options: Any) -> list[str]:
    """Run an operator that is mapped over two lists of models, and return where its ensembles are."""
    with DAG("toy", schedule=None) as dag:
        lists = [["a", "b"], ["b", "c"]]
        mapped: Any = EnsembleOperator.partial(task_id="both", **options).expand(models=lists)
    uris = []
    for index, models in enumerate(lists):
        task = mapped.unmap({"models": models})
        names = {"dag": dag, "task": task, "ti": SimpleNamespace(map_index=index), "params": {}}
        task.render_template_fields(names)
        uris.append(task.execute(make_context(task))["uri"])
    return uris


def test_each_of_mapped_tasks_writes_an_ensemble_of_its_own(root: Path) -> None:
    for name in "abc":
        write(root, name)
    assert run_mapped() == [f"{root.as_uri()}/toy/both/{index}" for index in range(2)]
    assert run_mapped(model="m/{{ ti.map_index }}") == [f"{root.as_uri()}/m/{index}" for index in range(2)]
    message = r"^EnsembleOperator 'both': all tasks of this mapped one write model='m', .* write model='m/\{\{ ti\.map_"
    with pytest.raises(TrainyardError, match=message):
        run_mapped(model="m")


@pytest.mark.parametrize("models", [["a", "b"], ["b", "a@{version}"]])
def test_an_ensemble_does_not_replace_one_of_its_members(root: Path, models: list[str]) -> None:
    member = write(root, "a")
    write(root, "b")
    message = r"^EnsembleOperator 'both': model='a' is one of models=, which the ensemble would replace; write another"
    with pytest.raises(AirflowException, match=message):
        run(models=[name.format(version=member.folder) for name in models], model="a")
    assert model_artifact.read_current(f"{root}/a") == member


def test_its_name_and_its_asset_are_those_of_the_task(root: Path) -> None:
    with DAG("toy", schedule=None):
        task = EnsembleOperator(task_id="both", models=["a", "b"])
    for name in "ab":
        write(root, name)
    events = OutletEventAccessors()
    result = task.execute(make_context(task, events))
    assert result["uri"] == f"{root.as_uri()}/toy/both" and task.outlets == [Asset("toy/both")]
    assert events[Asset("toy/both")].extra == {name: result[name] for name in ("weights_sha256", "members", "by")}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"label": None},
            r"must have the same outputs, but .*/a was trained on the label 'kind' .*, and .*/b on no",
        ),
        (
            {"inputs": (Column(name="x", kind="tensor", type="float", shape=(2,)),)},
            r"must read a column alike, but 'x' is float of shape \[3\] for .*/a, and float of shape \[2\] for .*/b",
        ),
    ],
)
def test_members_that_do_not_fit_together_are_named(root: Path, fields: dict[str, Any], message: str) -> None:
    write(root, "a", inputs=(Column(name="x", kind="tensor", type="float", shape=(3,)),))
    write(root, "b", **fields)
    with pytest.raises(AirflowException, match=f"^EnsembleOperator 'both': the models of an ensemble {message}"):
        run()
    assert not (root / "m/both").exists()


def test_a_missing_member_is_named(root: Path) -> None:
    write(root, "a")
    with pytest.raises(AirflowException, match=r"^EnsembleOperator 'both': .*/b is not a model: it has no model\.json"):
        run()


def test_the_code_of_all_members_is_shipped(root: Path, tmp_path: Path) -> None:
    for name in "abc":
        write(root, name)
    run()
    run(models=["m/both", "c"], model="m/all")
    assert recipes_of_models(EvaluateSpec, {"model": f"{root}/m/all"}) == [f"{name}.recipe:network" for name in "abc"]


def test_an_ensemble_is_promoted_and_the_champion_needs_no_member(root: Path) -> None:
    for name in "ab":
        write(root, name)
    result = run()
    evaluated = evaluation(Scores(**scores(result["uri"], result["weights_sha256"], accuracy=0.9)))
    promotion.publish(evaluated, promotion.read_champion(str(root / "champion")), Rule(metric="accuracy"), "better")
    for name in ("a", "b", "m"):
        storage.remove(f"{root}/{name}")
    champion = model_artifact.read_current(str(root / "champion"))
    assert [storage.read(f"{root}/champion/{file.path}") for file in champion.weights] == [b"a", b"b"]
