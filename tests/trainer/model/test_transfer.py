"""Initial weights from another model, and frozen layers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.schemas.references import Reference
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model import transfer
from trainyard.trainer.model.artifacts.card import render_markdown
from trainyard.trainer.model.artifacts.trained_model import load_model
from trainyard.trainer.model.artifacts.weights import read
from trainyard.trainer.model.network import Network
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.run.run import Run


def recipe(
    start_from: str | None = None, freeze: tuple[str, ...] = (), reinitialize: tuple[str, ...] = (), classes: int = 3
) -> Recipe:
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, classes))
    return Recipe(
        model=model, features="x", label="label", loss=nn.CrossEntropyLoss(), start_from=start_from, freeze=freeze,
        reinitialize=reinitialize,
    )  # fmt: skip


@pytest.fixture
def weights(tmp_path: Path) -> str:
    """A safetensors file with the weights of another such network."""
    torch.manual_seed(1)
    file = tmp_path / "other.safetensors"
    safetensors.torch.save_file(recipe().model.state_dict(), file)
    return str(file)


@pytest.fixture
def batches(tmp_path: Path) -> str:
    return datasets.write(tmp_path / "dataset", {"train": datasets.blobs(200)})


def train(batches: str, model: Path, **params: object) -> dict[str, torch.Tensor]:
    path = "tests.trainer.model.test_transfer:recipe"
    fit(path, recipe_params=params, dataset=batches, model=str(model), epochs=1, batch_size=50)
    return read(str(model), load_model(str(model)).artifact)


def test_frozen_layers_keep_the_loaded_weights_and_the_others_learn(batches: str, weights: str, tmp_path: Path) -> None:
    before = safetensors.torch.load_file(weights)
    after = train(batches, tmp_path / "model", start_from=weights, freeze=["0", "1"])
    assert all(torch.equal(before[name], after[name]) for name in before if name[0] in "01"), "running statistics too"
    assert not torch.equal(before["3.weight"], after["3.weight"])


def test_matching_tensors_are_loaded_from_a_model_artifact(batches: str, tmp_path: Path) -> None:
    first = train(batches, tmp_path / "first")
    fine_tuning = recipe(start_from=str(tmp_path / "first"), classes=5)
    transfer.initialize(fine_tuning)
    assert torch.equal(fine_tuning.model.state_dict()["0.weight"], first["0.weight"])
    assert fine_tuning.model.state_dict()["3.weight"].shape == (5, 4)


def test_a_job_starts_from_a_version_of_a_model(batches: str, tmp_path: Path) -> None:
    """The model that a training replaces may be the one that it starts from."""
    path, model = "tests.trainer.model.test_transfer:recipe", str(tmp_path / "model")
    options: dict[str, Any] = {"dataset": f"{batches}@1", "model": model, "batch_size": 50, "epochs": 1}
    first = fit(path, **options).artifact
    second = fit(path, **options, start_from=f"{model}@{first.weights_sha256[:6]}", seed=1).artifact  # type: ignore[union-attr]
    twice = fit(path, **options | {"epochs": 2}, start_from=model, seed=2).artifact
    assert first and second and twice
    assert (first.dataset, first.dataset_version) == (batches, 1)
    assert [first.start_from, second.start_from] == [None, f"{model}@{first.folder}"]
    assert twice.start_from == f"{model}@{second.folder}", "which version the name meant"
    assert Reference(model, second.folder) in twice.references()
    assert "| initial weights |" in render_markdown(twice)


def test_a_loop_starts_from_a_model_in_its_first_network(batches: str, tmp_path: Path) -> None:
    first = train(batches, tmp_path / "model")
    fit(loop=f"{__name__}:publish", dataset=batches, model=str(tmp_path / "same"), start_from=str(tmp_path / "model"))
    same = read(str(tmp_path / "same"), load_model(str(tmp_path / "same")).artifact)
    assert all(torch.equal(first[name], same[name]) for name in first)


def publish(run: Run) -> None:
    """Publish the first of two networks, and train none."""
    net, other = run.model(recipe), run.model(recipe)
    assert not torch.equal(net.model[0].weight, other.model[0].weight)  # type: ignore[index]
    run.track(net=net, other=other)
    for _ in run.steps():
        break
    run.publish(net)


def test_a_job_and_its_recipe_cannot_both_name_a_model(weights: str) -> None:
    with pytest.raises(TrainyardError, match=r"start_from='m', and the recipe has start_from='.*'; remove one of them"):
        transfer.replace_start(recipe(weights), "m")


def test_reinitialized_layers_are_not_loaded(weights: str) -> None:
    fine_tuning, before = recipe(weights, reinitialize=("3",)), safetensors.torch.load_file(weights)
    transfer.initialize(fine_tuning)
    assert torch.equal(fine_tuning.model.state_dict()["0.weight"], before["0.weight"])
    assert not torch.equal(fine_tuning.model.state_dict()["3.weight"], before["3.weight"])


def test_reinitialized_layers_keep_their_initial_buffers(tmp_path: Path) -> None:
    file = tmp_path / "other.safetensors"
    safetensors.torch.save_file({name: tensor + 5 for name, tensor in recipe().model.state_dict().items()}, file)
    fine_tuning = recipe(str(file), reinitialize=("1",))
    before = {name: tensor.clone() for name, tensor in fine_tuning.model.state_dict().items()}
    transfer.initialize(fine_tuning)
    after = fine_tuning.model.state_dict()
    assert [name for name in before if torch.equal(before[name], after[name])] == [
        "1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked",
    ]  # fmt: skip


def test_a_frozen_layer_is_in_evaluation_mode(weights: str) -> None:
    fine_tuning = recipe(weights, freeze=("1",))
    transfer.initialize(fine_tuning)
    network = Network(fine_tuning.model, (), {}).train()
    assert [module.training for module in fine_tuning.model] == [True, False, True, True]
    network.eval()
    assert not any(module.training for module in fine_tuning.model)


def test_a_model_loads_without_the_weights_it_started_from(batches: str, weights: str, tmp_path: Path) -> None:
    train(batches, tmp_path / "model", start_from=weights, freeze=["0"])
    Path(weights).unlink()
    assert load_model(str(tmp_path / "model")).output(datasets.blobs(5)).shape == (5, 3)


@pytest.mark.parametrize(
    ("freeze", "message"),
    [
        (("7",), r"freeze='7': the model has no parameters of that name; its layers are 0, 1, 2, 3\."),
        (("3",), r"freeze='3': .* has no weights for 3\.bias, which would keep its random initial values"),
    ],
)
def test_the_error_for_a_layer_that_cannot_be_frozen_names_it(
    weights: str, freeze: tuple[str, ...], message: str
) -> None:
    with pytest.raises(TrainyardError, match=message):
        transfer.initialize(recipe(weights, freeze, classes=5))


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.safetensors"
    safetensors.torch.save_file({"deep.weight": torch.zeros(2)}, file)
    with pytest.raises(
        TrainyardError, match=r"no tensor that matches the model: it has deep\.weight \[2\]; the model has 0\.weight"
    ):
        transfer.initialize(recipe(str(file)))
    with pytest.raises(TrainyardError, match=r"start_from=.*missing.safetensors' does not exist"):
        transfer.initialize(recipe(str(tmp_path / "missing.safetensors")))


@pytest.mark.parametrize(
    "rename",
    [
        lambda name: f"module.{name}",
        lambda name: f"_orig_mod.{name}",
        lambda name: f"model.{name}",
        lambda name: f"_orig_mod.module.model.{name}",
        lambda name: name.replace(".", "._orig_mod.", 1),
    ],
    ids=["DDP", "torch.compile", "Lightning", "all", "compiled layers"],
)
def test_prefixes_of_wrappers_are_understood(rename: Callable[[str], str], tmp_path: Path) -> None:
    before, file = recipe().model.state_dict(), tmp_path / "other.safetensors"
    safetensors.torch.save_file({rename(name): tensor for name, tensor in before.items()}, file)
    fine_tuning = recipe(str(file))
    assert transfer.initialize(fine_tuning) == []
    assert all(torch.equal(before[name], tensor) for name, tensor in fine_tuning.model.state_dict().items())


def test_names_that_match_as_they_are_come_first(tmp_path: Path) -> None:
    """A model whose own layer is named `model` may have a prefix that is none."""
    file = tmp_path / "other.safetensors"
    safetensors.torch.save_file({"0.weight": torch.zeros(4, 8), "model.0.weight": torch.ones(4, 8)}, file)
    fine_tuning = recipe(str(file))
    transfer.initialize(fine_tuning)
    assert not fine_tuning.model.state_dict()["0.weight"].any()


def test_a_partial_match_is_counted_and_warned_of(
    batches: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "other.safetensors"
    tensors = recipe(classes=5).model.state_dict()
    safetensors.torch.save_file(
        {n: t for n, t in tensors.items() if n[0] == "3"} | {"0.weight": torch.ones(4, 8)}, file
    )
    result = fit(
        "tests.trainer.model.test_transfer:recipe", recipe_params={"start_from": str(file)}, dataset=batches,
        model=str(tmp_path / "model"), epochs=1, batch_size=50,
    )  # fmt: skip
    text = (
        f"start_from={str(file)!r} has initial values for 1 of the 9 tensors of the model. 8 others keep random "
        "values: 0.bias [4], 1.weight [4], 1.bias [4], 1.running_mean [4], ...; not used are 3.bias [5], 3.weight "
        "[5, 4]. Correct the names, or name these layers in reinitialize=."
    )
    assert [warning for warning in result.warnings if "start_from" in warning] == [text]
    assert text in capsys.readouterr().out


def test_a_match_of_all_but_reinitialized_layers_is_logged_without_a_warning(
    weights: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert transfer.initialize(recipe(weights, reinitialize=("3",))) == []
    assert f"start_from={weights!r} has initial values for 7 of the 9 tensors of the model" in capsys.readouterr().out
