"""Starting from other weights, and layers that stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model import transfer
from trainyard.trainer.model.network import Network
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.model.trained_model import load_model, read_weights


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
    """A file of the weights of another such network."""
    torch.manual_seed(1)
    file = tmp_path / "other.safetensors"
    safetensors.torch.save_file(recipe().model.state_dict(), file)
    return str(file)


@pytest.fixture
def batches(tmp_path: Path) -> str:
    return datasets.write(tmp_path / "dataset", {"train": datasets.blobs(200)})


def trained(batches: str, model: Path, **params: object) -> dict[str, torch.Tensor]:
    path = "tests.trainer.model.test_transfer:recipe"
    fit(path, recipe_params=params, dataset=batches, model=str(model), epochs=1, batch_size=50)
    return read_weights(str(model), load_model(str(model)).artifact)


def test_frozen_layers_stay_as_they_were_loaded_and_the_others_learn(
    batches: str, weights: str, tmp_path: Path
) -> None:
    before = safetensors.torch.load_file(weights)
    after = trained(batches, tmp_path / "model", start_from=weights, freeze=["0", "1"])
    assert all(torch.equal(before[name], after[name]) for name in before if name[0] in "01"), "statistics too"
    assert not torch.equal(before["3.weight"], after["3.weight"])


def test_a_bundle_is_a_start_too_as_far_as_shapes_agree(batches: str, tmp_path: Path) -> None:
    first = trained(batches, tmp_path / "first")
    made = recipe(start_from=str(tmp_path / "first"), classes=5)
    transfer.begin(made)
    assert torch.equal(made.model.state_dict()["0.weight"], first["0.weight"])
    assert made.model.state_dict()["3.weight"].shape == (5, 4)


def test_fresh_layers_do_not_start_from_them(weights: str) -> None:
    made, before = recipe(weights, reinitialize=("3",)), safetensors.torch.load_file(weights)
    transfer.begin(made)
    assert torch.equal(made.model.state_dict()["0.weight"], before["0.weight"])
    assert not torch.equal(made.model.state_dict()["3.weight"], before["3.weight"])


def test_what_is_frozen_is_not_in_training_mode(weights: str) -> None:
    made = recipe(weights, freeze=("1",))
    transfer.begin(made)
    network = Network(made.model, (), {}).train()
    assert [module.training for module in made.model] == [True, False, True, True]
    network.eval()
    assert not any(module.training for module in made.model)


def test_a_model_loads_without_what_it_started_from(batches: str, weights: str, tmp_path: Path) -> None:
    trained(batches, tmp_path / "model", start_from=weights, freeze=["0"])
    Path(weights).unlink()
    assert load_model(str(tmp_path / "model")).output(datasets.blobs(5)).shape == (5, 3)


@pytest.mark.parametrize(
    ("freeze", "message"),
    [
        (("7",), r"freeze='7': the model has no parameters of that name; its layers are 0, 1, 2, 3\."),
        (("3",), r"freeze='3': .* has nothing for 3\.bias, which would stay as chance made it"),
    ],
)
def test_a_layer_that_cannot_be_frozen_is_named(weights: str, freeze: tuple[str, ...], message: str) -> None:
    with pytest.raises(TrainyardError, match=message):
        transfer.begin(recipe(weights, freeze, classes=5))


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.safetensors"
    safetensors.torch.save_file({"deep.weight": torch.zeros(2)}, file)
    with pytest.raises(
        TrainyardError, match=r"no tensor that fits: it has deep\.weight \[2\], and the model 0\.weight"
    ):
        transfer.begin(recipe(str(file)))
    with pytest.raises(TrainyardError, match=r"start_from=.*missing.safetensors' is not there"):
        transfer.begin(recipe(str(tmp_path / "missing.safetensors")))
