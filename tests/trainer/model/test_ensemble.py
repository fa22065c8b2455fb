"""An ensemble computes what numpy and scikit-learn compute of its members' outputs, and is a model as any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.ensemble import VotingClassifier
from torch import nn

from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.models import ensembles
from trainyard.schemas import model_artifact
from trainyard.schemas.model_artifact import Combination
from trainyard.trainer.formats.export import export
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.artifacts.trained_model import TrainedModel, load_model
from trainyard.trainer.model.ensemble import count_votes, mean_outputs
from trainyard.trainer.model.heads import Head
from trainyard.trainer.model.recipe import Recipe

WEIGHTS = (0.5, 0.3, 0.2)
LOGITS = np.random.default_rng(0).normal(0, 3, (3, 50, 4)).astype(np.float32)
TENSORS = torch.from_numpy(LOGITS), torch.tensor(WEIGHTS)


def mean(values: NDArray[Any]) -> NDArray[Any]:
    averaged: NDArray[Any] = np.average(values, axis=0, weights=WEIGHTS)
    return averaged


def test_the_mean_of_classes_is_that_of_their_probabilities() -> None:
    output = mean_outputs(Head(classes=4), *TENSORS).numpy()
    np.testing.assert_allclose(softmax(output, 1), mean(softmax(LOGITS, 2)), rtol=1e-5)
    far = mean_outputs(Head(classes=4), 100 * TENSORS[0], TENSORS[1])
    assert torch.isfinite(far).all(), "a probability that is 0 in float32 has a logarithm"


def test_the_mean_of_logits_is_that_of_their_probabilities() -> None:
    output = mean_outputs(Head(loss=nn.BCEWithLogitsLoss()), *TENSORS).numpy()
    np.testing.assert_allclose(expit(output), mean(expit(LOGITS)), rtol=1e-5)


def test_the_mean_of_logarithms_is_that_of_what_they_stand_for() -> None:
    for loss in (nn.NLLLoss(), nn.PoissonNLLLoss()):
        output = mean_outputs(Head(loss=loss), *TENSORS).numpy()
        np.testing.assert_allclose(np.exp(output), mean(np.exp(LOGITS)), rtol=1e-4)


@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.BCELoss(), nn.PoissonNLLLoss(log_input=False)])
def test_the_mean_of_other_outputs_is_theirs(loss: nn.Module) -> None:
    np.testing.assert_allclose(mean_outputs(Head(loss=loss), *TENSORS).numpy(), mean(LOGITS), rtol=1e-4, atol=1e-6)


class Fixed:
    """A classifier of scikit-learn whose decisions are given."""

    def __init__(self, classes: NDArray[Any]) -> None:
        self._classes = classes

    def predict(self, rows: NDArray[Any]) -> NDArray[Any]:
        return self._classes


@pytest.mark.parametrize("weights", [WEIGHTS, (1 / 3, 1 / 3, 1 / 3)])
def test_a_vote_is_that_of_scikit_learn(weights: Sequence[float]) -> None:
    """Also where each of three members votes for another class: the first class wins."""
    members = [Fixed(one.argmax(1)) for one in LOGITS]
    voting = VotingClassifier([(str(number), one) for number, one in enumerate(members)], weights=weights)
    voting.estimators_ = members
    voting.le_ = type("Encoder", (), {"inverse_transform": staticmethod(lambda classes: classes)})
    output = count_votes(Head(classes=4), TENSORS[0], torch.tensor(weights))
    np.testing.assert_array_equal(output.argmax(1).numpy(), voting.predict(np.zeros((50, 1))))
    assert len({tuple(sorted(votes)) for votes in LOGITS.argmax(2).T if len({*votes}) == 3}) > 1
    np.testing.assert_allclose(output.exp().sum(1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("loss", "outputs"), [(nn.BCEWithLogitsLoss(), LOGITS), (nn.BCELoss(), expit(LOGITS).astype(np.float32))]
)
def test_a_vote_of_two_classes_is_the_share_of_those_for_the_second(loss: nn.Module, outputs: NDArray[Any]) -> None:
    output = count_votes(Head(loss=loss), torch.from_numpy(outputs), TENSORS[1])
    shares = output.sigmoid() if isinstance(loss, nn.BCEWithLogitsLoss) else output
    np.testing.assert_allclose(shares.numpy(), mean((LOGITS > 0).astype(float)), atol=1e-5)


def linear(classes: int = 3, hidden: int = 0, label: str = "label", normalize: Any = "element") -> Recipe:
    size = hidden or classes
    layers = nn.Sequential(nn.Linear(8, size), *([nn.Tanh(), nn.Linear(size, classes)] if hidden else []))
    return Recipe(
        model=layers, features="x", label=label, classes=classes, normalize=normalize, learning_rate=0.05,
        metrics=["accuracy"], predict=lambda output: {"class": output.argmax(1), "probabilities": output.softmax(1)},
    )  # fmt: skip


def heads() -> Recipe:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kind, self.size = nn.Linear(8, 3), nn.Linear(8, 1)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"kind": self.kind(x), "size": self.size(x).squeeze(1)}

    named = {"kind": Head(label="label", classes=3), "size": Head(label="label", loss=nn.MSELoss())}
    return Recipe(model=Two(), features="x", heads=named)


def ignoring() -> Recipe:
    return replace(linear(), loss=nn.NLLLoss())


def images(scale: float = 1.0) -> Recipe:
    """A recipe that decodes bytes to numbers of a scale of its own."""
    return replace(linear(), features="image", decode={"image": lambda data: np.frombuffer(data, np.uint8) * scale})


class Container(nn.Module):
    """A model that returns its output in a container."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer, self._kind = nn.Linear(8, 3), kind

    def forward(self, x: torch.Tensor) -> Any:
        output = self.layer(x)
        return {"logits": output} if self._kind == "dict" else (output, output)


def contained(kind: str) -> Recipe:
    part = "logits" if kind == "dict" else 0
    return replace(
        linear(), model=Container(kind), metrics=(), predict=lambda output: {"class": output[part].argmax(1)},
        loss=lambda output, label: nn.functional.cross_entropy(output[part], label),
    )  # fmt: skip


def blobs(rows: int, seed: int = 0) -> dict[str, Any]:
    """Return rows whose features are there as bytes too."""
    columns = datasets.blobs(rows, seed)
    return {**columns, "image": [(20 * row + 128).clip(0, 255).astype(np.uint8).tobytes() for row in columns["x"]]}


def train(folder: Path, name: str, recipe: str = "linear", **params: Any) -> str:
    """Train a model of a recipe of this file, and return its URI."""
    dataset = folder / "dataset"
    if not dataset.exists():
        datasets.write(dataset, {"train": blobs(200), "test": blobs(60)})
    uri = str(folder / name)
    fit(
        f"{__name__}:{recipe}", dataset=str(dataset), model=uri, epochs=2, batch_size=20, recipe_params=params,
        seed=len(name),
    )  # fmt: skip
    return uri


def combine(uri: str, *models: str, by: Combination = "mean", weights: Sequence[float] | None = None) -> TrainedModel:
    artifact = ensembles.build([model_artifact.find(model) for model in models], by, weights)
    ensembles.save(uri, artifact)
    return load_model(uri)


def test_an_ensemble_of_trained_models_predicts_their_mean_and_needs_them_no_more(tmp_path: Path) -> None:
    """Its members normalize their inputs, or do not, and have layers of their own."""
    models = [train(tmp_path, "a"), train(tmp_path, "bb", hidden=5), train(tmp_path, "ccc", normalize=None)]
    rows = datasets.blobs(30, seed=7)
    alone = [load_model(model).predict(rows)["probabilities"] for model in models]
    both = combine(str(tmp_path / "both"), *models, weights=[5, 3, 2])
    for model in models:
        (tmp_path / model).rename(tmp_path / f"{model}-moved")
    predicted = load_model(str(tmp_path / "both")).predict(rows)
    np.testing.assert_allclose(predicted["probabilities"], mean(np.array(alone)), rtol=1e-4)
    np.testing.assert_array_equal(predicted["class"], mean(np.array(alone)).argmax(1))
    assert both.features("members.1.model.0", rows).shape == (30, 5)


def test_an_ensemble_of_heads_combines_each(tmp_path: Path) -> None:
    models = [train(tmp_path, name, "heads") for name in ("a", "bb")]
    rows = datasets.blobs(30, seed=7)
    outputs = [load_model(model).output(rows) for model in models]
    both = combine(str(tmp_path / "both"), *models).output(rows)
    torch.testing.assert_close(both["size"], sum(one["size"] for one in outputs) / 2)
    torch.testing.assert_close(both["kind"].softmax(1), sum(one["kind"].softmax(1) for one in outputs) / 2)


def test_each_member_decodes_rows_by_its_own_recipe(tmp_path: Path) -> None:
    models = [train(tmp_path, "a", "images"), train(tmp_path, "bb", "images", scale=1 / 255)]
    rows = {"image": blobs(30, seed=7)["image"]}
    alone = [load_model(model).predict(rows)["probabilities"] for model in models]
    both = combine(str(tmp_path / "both"), *models)
    np.testing.assert_allclose(both.predict(rows)["probabilities"], np.mean(alone, 0), rtol=1e-4)
    with pytest.raises(TrainyardError, match=r"/members/0 and .*/members/1 decode the column 'image' by two functions"):
        export(str(tmp_path / "both"), "pt2", str(tmp_path / "both.pt2"))


@pytest.mark.parametrize("kind", ["dict", "tuple"])
def test_an_output_that_is_no_tensor_is_refused(tmp_path: Path, kind: str) -> None:
    models = [train(tmp_path, name, "contained", kind=kind) for name in ("a", "bb")]
    both = combine(str(tmp_path / "both"), *models)
    with pytest.raises(TrainyardError, match=rf"^the models .* must return tensors, but .*/a returns a {kind}; write"):
        both.output(datasets.blobs(5))


def test_an_ensemble_may_be_a_member(tmp_path: Path) -> None:
    first, second, third = (train(tmp_path, name) for name in ("a", "bb", "ccc"))
    rows = datasets.blobs(30, seed=7)
    combine(str(tmp_path / "inner"), first, second)
    outer = combine(str(tmp_path / "outer"), str(tmp_path / "inner"), third, weights=[2, 1])
    expected = combine(str(tmp_path / "flat"), first, second, third)
    np.testing.assert_allclose(outer.predict(rows)["probabilities"], expected.predict(rows)["probabilities"], rtol=1e-5)


def test_the_version_of_an_ensemble_follows_from_its_members_and_how_they_are_combined(tmp_path: Path) -> None:
    found = [model_artifact.find(train(tmp_path, name)) for name in ("a", "bb")]
    same, again = (ensembles.build(found).weights_sha256 for _ in range(2))
    others = {ensembles.build(found, by="vote").weights_sha256, ensembles.build(found, weights=[2, 1]).weights_sha256}
    assert same == again and len(others | {same}) == 3
    references = {reference.uri: reference.version for reference in ensembles.build(found).references()}
    assert all(references[uri] == artifact.weights_sha256 for uri, artifact in found)


def test_an_ensemble_refers_to_what_each_of_its_members_read(tmp_path: Path) -> None:
    found = [model_artifact.find(train(tmp_path, name)) for name in ("a", "bb")]
    other = found[1][1].model_copy(update={"dataset": "/other", "dataset_version": 7})
    ensemble = ensembles.build([found[0], (found[1][0], other)])
    references = {(reference.uri, reference.version) for reference in ensemble.references()}
    assert {(found[0][1].dataset, found[0][1].dataset_version), ("/other", 7)} < references


@pytest.mark.parametrize(
    ("recipe", "params", "message"),
    [
        ("linear", {"classes": 4}, "the recipes of .*/a and .*/bb differ in classes=, loss= or sequences="),
        ("ignoring", {}, "the recipes of .*/a and .*/bb differ in classes=, loss= or sequences="),
        ("heads", {}, r".*/a was trained on the label 'label' of shape \[\], and .*/bb on .* \(head 'kind'\)"),
    ],
)
def test_members_with_other_outputs_are_refused(
    tmp_path: Path, recipe: str, params: dict[str, Any], message: str
) -> None:
    models = [train(tmp_path, "a"), train(tmp_path, "bb", recipe, **params)]
    with pytest.raises(TrainyardError, match=f"^the models of an ensemble must have the same outputs, but {message}"):
        combine(str(tmp_path / "both"), *models)


@pytest.mark.parametrize(
    ("models", "weights", "message"),
    [(["a"], None, "models= has 1 model; write two or more"), (["a", "a"], [1.0], "write 2 numbers greater than 0")],
)
def test_members_and_weights_are_counted(
    tmp_path: Path, models: list[str], weights: list[float] | None, message: str
) -> None:
    train(tmp_path, "a")
    with pytest.raises(TrainyardError, match=message):
        combine(str(tmp_path / "both"), *(str(tmp_path / name) for name in models), weights=weights)


def test_models_without_classes_do_not_vote(tmp_path: Path) -> None:
    models = [train(tmp_path, name, "heads") for name in ("a", "bb")]
    with pytest.raises(TrainyardError, match=r"^by='vote' goes with models of classes, .* write by='mean'"):
        combine(str(tmp_path / "both"), *models, by="vote")


def test_a_training_does_not_start_from_an_ensemble(tmp_path: Path) -> None:
    models = [train(tmp_path, name) for name in ("a", "bb")]
    combine(str(tmp_path / "both"), *models)
    with pytest.raises(TrainyardError, match=r"is an ensemble; write one of its members: .*/a, .*/bb"):
        fit(
            f"{__name__}:linear", dataset=str(tmp_path / "dataset"), model=str(tmp_path / "next"), epochs=1,
            batch_size=20, start_from=str(tmp_path / "both"),
        )  # fmt: skip


def test_an_ensemble_is_exported_as_one_program(tmp_path: Path) -> None:
    models = [train(tmp_path, "a"), train(tmp_path, "bb", hidden=5)]
    both = combine(str(tmp_path / "both"), *models)
    export(str(tmp_path / "both"), "pt2", str(tmp_path / "both.pt2"))
    rows = datasets.blobs(30, seed=7)
    program = torch.export.load(tmp_path / "both.pt2").module()
    found = program({"x": torch.from_numpy(rows["x"])})["probabilities"]
    np.testing.assert_allclose(found.detach().numpy(), both.predict(rows)["probabilities"], rtol=1e-4)
