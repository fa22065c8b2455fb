"""The tensors of a model in files: of limited size, with tied weights once, and readable by others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from huggingface_hub import load_torch_model
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.trainer import datasets
from tests.trainer.runs import RECIPES
from tests.trainer.workers import Workers
from trainyard.errors import TrainyardError
from trainyard.schemas import model_artifact
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.artifacts import weights
from trainyard.trainer.model.artifacts.trained_model import load_model
from trainyard.trainer.model.artifacts.weights import load_into, plan_files, read
from trainyard.trainer.world import World


class Tied(nn.Module):
    """A language model whose output layer has the weights of its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.hidden = nn.Linear(4, 4)
        self.output = nn.Linear(4, 7, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.hidden(self.embedding(x)))


def write(module: nn.Module, folder: Path) -> ModelArtifact:
    """Write a module and the part of an artifact that its files need."""
    written = weights.write(str(folder), module)
    assert written
    return ModelArtifact(
        recipe="a:b", recipe_params={}, inputs=(), label=None, normalization={}, dataset="d", dataset_hash="d",
        weights=written.files, weights_sha256=written.sha256, aliases=written.aliases, dataset_version=1, metrics={},
        epochs=1, workers=1, seconds=1.0, device="cpu", application="", written_at="", versions={},
    )  # fmt: skip


def assert_equal(first: nn.Module, second: nn.Module) -> None:
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name


def test_tied_weights_are_stored_once_and_stay_tied(tmp_path: Path) -> None:
    module, loaded = Tied(), Tied()
    artifact = write(module, tmp_path)
    assert artifact.aliases == {"output.weight": "embedding.weight"}
    assert artifact.weights[0].bytes < 4 * (7 * 4 + 16 + 4) + 400
    load_into(loaded, str(tmp_path), artifact)
    assert_equal(module, loaded)
    assert loaded.output.weight is loaded.embedding.weight
    assert read(str(tmp_path), artifact).keys() == module.state_dict().keys()


def test_a_recipe_with_tied_weights_can_be_trained_and_loaded(tmp_path: Path) -> None:
    uri = datasets.write(tmp_path / "data", {"train": datasets.blobs(100)})
    fit(f"{RECIPES}:tied", dataset=uri, model=str(tmp_path / "model"), epochs=2, batch_size=20)
    assert load_model(str(tmp_path / "model")).output(datasets.blobs(5)).shape == (5, 3)


@pytest.mark.slow
@given(st.dictionaries(st.text(min_size=1), st.integers(0, 50), min_size=1), st.integers(1, 60))
def test_a_file_has_at_most_the_limit_or_one_tensor(sizes: dict[str, int], limit: int) -> None:
    files = plan_files(sizes, limit)
    assert [name for file in files for name in file] == list(sizes)
    for file in files:
        assert len(file) == 1 or sum(sizes[name] for name in file) <= limit


@pytest.fixture
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "FILE_BYTES", 100)


@pytest.mark.usefixtures("_small_files")
def test_a_large_model_is_stored_in_several_files_that_another_library_reads(tmp_path: Path) -> None:
    module, loaded, peer = (nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 3)) for _ in range(3))
    artifact = write(module, tmp_path)
    assert [Path(file.path).name for file in artifact.weights] == [
        "weights-00001-of-00003.safetensors", "weights-00002-of-00003.safetensors", "weights-00003-of-00003.safetensors"
    ]  # fmt: skip
    load_into(loaded, str(tmp_path), artifact)
    assert_equal(module, loaded)
    load_torch_model(peer, tmp_path / artifact.folder, filename_pattern="weights{suffix}.safetensors")
    assert_equal(module, peer)


@pytest.mark.usefixtures("_small_files")
def test_an_altered_file_of_several_is_refused(tmp_path: Path) -> None:
    artifact = write(nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 3)), tmp_path)
    file = tmp_path / artifact.weights[1].path
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(TrainyardError, match=r"weights-00002-of-00003\.safetensors was altered"):
        read(str(tmp_path), artifact)


def test_views_of_one_tensor_are_stored_separately(tmp_path: Path) -> None:
    module = nn.Module()
    memory = torch.arange(8.0)
    module.register_buffer("first", memory[:6])
    module.register_buffer("last", memory[2:])
    tensors = read(str(tmp_path), write(module, tmp_path))
    assert tensors["first"].tolist() == [0, 1, 2, 3, 4, 5] and tensors["last"].tolist() == [2, 3, 4, 5, 6, 7]


def test_the_same_weights_again_leave_one_folder(tmp_path: Path) -> None:
    module = nn.Linear(2, 2)
    assert write(module, tmp_path).folder == write(module, tmp_path).folder
    assert len(list(tmp_path.iterdir())) == 1


def train(world: World, dataset: str, model: str, file_bytes: int) -> None:
    weights.FILE_BYTES = file_bytes
    fit(f"{RECIPES}:linear", dataset=dataset, model=model, world=world, strategy="fsdp", epochs=1, batch_size=20)


@pytest.mark.ranks
@pytest.mark.parametrize(("file_bytes", "files"), [(60, 2), pytest.param(1 << 30, 1, marks=pytest.mark.full)])
def test_a_sharded_model_is_gathered_tensor_by_tensor(tmp_path: Path, file_bytes: int, files: int) -> None:
    uri = datasets.write(tmp_path / "data", {"train": datasets.blobs(100)})
    with Workers(2) as workers:
        workers(train, uri, str(tmp_path / "model"), file_bytes)
    assert len(model_artifact.read_current(str(tmp_path / "model")).weights) == files
    assert load_model(str(tmp_path / "model")).output(datasets.blobs(5)).shape == (5, 3)
