"""LightningModules in this loop, and datasets in Lightning's Trainer: both learn the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

from tests.trainer import datasets, modules
from tests.trainer.modules import Net
from tests.trainer.workers import Workers
from trainyard.errors import TrainyardError
from trainyard.schemas.datasets.manifest import Column
from trainyard.trainer.formats.export import export
from trainyard.trainer.loop.fit import FitResult, fit
from trainyard.trainer.model.artifacts.trained_model import load_model
from trainyard.trainer.model.integrations import lightning
from trainyard.trainer.model.integrations.datamodule import TrainyardDataModule
from trainyard.trainer.model.network import Network
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.world import World

MODULES = "tests.trainer.modules"


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("data") / "dataset"
    return datasets.write(directory, {"train": datasets.blobs(330), "validation": datasets.blobs(80, seed=1)})


def train(world: World | None, batches: str, model: str, recipe: str = "net", **options: Any) -> FitResult:
    given = {"epochs": 3, "batch_size": 50, "seed": 7} | options
    return fit(f"{MODULES}:{recipe}", dataset=batches, model=model, world=world, **given)


def losses(world: World, batches: str, model: str, strategy: str) -> list[float]:
    history = train(world, batches, model, strategy=strategy).history
    return [epoch[name] for epoch in history.epochs for name in ("loss", "validation_loss", "accuracy")]


def trainer(folder: Path, epochs: int = 3, **options: Any) -> Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    defaults = {"accelerator": "auto", "default_root_dir": folder} | quiet
    return Trainer(max_epochs=epochs, **defaults | options)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("interval", ["epoch", "step"])
def test_a_module_learns_the_same_with_fit_and_lightnings_trainer(batches: str, tmp_path: Path, interval: str) -> None:
    fitted = train(None, batches, str(tmp_path / "model"), recipe_params={"interval": interval})
    assert fitted.history.best == 2, "the model artifact has the weights of the last epoch"
    torch.manual_seed(7)
    expected = Net(interval)
    data = TrainyardDataModule(batches, ["x", "label"], batch_size=50, seed=7)
    trainer(tmp_path, enable_checkpointing=False).fit(expected, data)
    assert len(expected.losses) == 3 * 7
    weights = load_model(str(tmp_path / "model")).recipe.model.module.state_dict()
    for name, tensor in expected.state_dict().items():
        assert weights[name].cpu().numpy() == pytest.approx(tensor.cpu().numpy(), rel=1e-5, abs=1e-6)
    rows = [50] * 6 + [30]
    for number, epoch in enumerate(fitted.history.epochs):
        mean = np.average(expected.losses[7 * number : 7 * number + 7], weights=rows)
        assert epoch["loss"] == pytest.approx(mean, rel=1e-5)


@pytest.mark.ranks
def test_two_workers_learn_the_same_as_one(batches: str, tmp_path: Path) -> None:
    alone = losses(World(), batches, str(tmp_path / "alone"), "allreduce")
    with Workers(2) as workers:
        for strategy in ("allreduce", "fsdp"):
            results = workers(losses, batches, str(tmp_path / strategy), strategy)
            assert results[0] == results[1] == pytest.approx(alone, rel=1e-4)


def test_padded_columns_are_batched_as_values_and_masks(tmp_path: Path) -> None:
    uri = datasets.write(tmp_path / "dataset", {"train": datasets.sequences(200)})
    histories = [
        train(None, uri, str(tmp_path / f"{named}"), "words", recipe_params={"named": named}).history
        for named in (False, True)
    ]
    losses = [[epoch["loss"] for epoch in history.epochs] for history in histories]
    assert losses[0] == losses[1]
    assert losses[0][-1] < losses[0][0]


def test_forward_predicts_from_normalized_columns(batches: str, tmp_path: Path) -> None:
    params = {"normalize": "element"}
    fitted = train(None, batches, str(tmp_path / "model"), recipe_params=params)
    assert fitted.metrics["accuracy"] > 0.9
    model, rows = load_model(str(tmp_path / "model")), datasets.blobs(50, seed=3)
    net, scaling = model.recipe.model.module.cpu(), model.artifact.normalization["x"]
    scaled = (rows["x"] - np.float32(scaling.mean)) / np.float32(scaling.std)
    expected = net(torch.from_numpy(scaled)).detach().numpy()
    assert load_model(str(tmp_path / "model")).output(rows).cpu().numpy() == pytest.approx(expected, rel=1e-4, abs=1e-5)
    export(str(tmp_path / "model"), "pt2", str(tmp_path / "model.pt2"))
    program = torch.export.load(tmp_path / "model.pt2").module()
    prediction = program({"x": torch.from_numpy(rows["x"])})
    assert (prediction["class_"].numpy() == expected.argmax(1)).all()


def test_a_step_may_take_and_return_dicts(batches: str, tmp_path: Path) -> None:
    epochs = train(None, batches, str(tmp_path), "dict_batches").history.epochs
    assert epochs[2]["loss"] < epochs[0]["loss"]


def test_a_module_moves_with_the_network() -> None:
    recipe = modules.net()
    assert recipe.model.to("meta").module.device == torch.device("meta")


class Manual(Net):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False


class Hooked(Net):
    def on_train_epoch_end(self) -> None:
        self.losses.clear()


class Two(Net):
    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(part.parameters(), 0.1) for part in (self.body[0], self.body[2])]


class Nothing(Net):
    def configure_optimizers(self) -> None:
        return None


class Plateau(Net):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": ReduceLROnPlateau(optimizer), "monitor": "loss"}}


class EveryFifth(Net):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        return [optimizer], [{"scheduler": StepLR(optimizer, 1), "frequency": 5}]


class UsesTrainer(Net):
    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 1 / self.trainer.estimated_stepping_batches)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Manual, "Manual sets automatic_optimization=False"),
        (Hooked, "Hooked overrides on_train_epoch_end, which this loop does not call"),
        (Two, "Two.configure_optimizers returned 2 optimizers and 0 schedulers"),
        (Nothing, "Nothing.configure_optimizers returned 0 optimizers"),
        (Plateau, "returned ReduceLROnPlateau, which is not supported"),
        (EveryFifth, "returned frequency=5, but this loop steps a scheduler after each update or each epoch"),
        (UsesTrainer, "configure_optimizers uses self.trainer, which exists in Lightning's Trainer only"),
        (nn.Identity, "Identity is not a LightningModule; write a trainyard.trainer.Recipe"),
    ],
)
def test_a_module_with_unsupported_features_is_refused(module: type[nn.Module], message: str) -> None:
    with pytest.raises(TrainyardError, match=message):
        lightning.from_lightning(module(), features="x", label="label")


class RecordingModule(LightningModule):
    """Record the rows of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.seen: list[list[int]] = []

    def training_step(self, batch: tuple[torch.Tensor]) -> torch.Tensor:
        self.seen.append(batch[0].tolist())
        return self.weight * 1.0

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


@pytest.fixture
def ids(tmp_path: Path) -> str:
    return datasets.write(tmp_path / "ids", {"train": {"id": np.arange(100)}}, rows_per_batch=16)


@pytest.mark.parametrize("reload", [0, 1])
def test_a_trainer_resumes_in_the_order_of_its_checkpoint(ids: str, tmp_path: Path, reload: int) -> None:
    def seen(epochs: int, checkpoint: Path | None, **options: Any) -> list[list[int]]:
        module = RecordingModule()
        run = trainer(tmp_path, epochs, enable_checkpointing=False, **options)
        run.fit(module, TrainyardDataModule(ids, ["id"], batch_size=30), ckpt_path=checkpoint, weights_only=True)
        run.save_checkpoint(tmp_path / f"{epochs}.ckpt")
        return module.seen

    uninterrupted, first = seen(3, None), seen(1, None)
    assert [len(batch) for batch in uninterrupted] == 3 * [30, 30, 30, 10]
    assert first + seen(3, tmp_path / "1.ckpt", reload_dataloaders_every_n_epochs=reload) == uninterrupted


def test_a_trainer_resumes_within_an_epoch_and_runs_all_further_steps(ids: str, tmp_path: Path) -> None:
    def seen(checkpoint: Path | None, **options: Any) -> list[list[int]]:
        module = RecordingModule()
        run = trainer(tmp_path, 2, **options)
        run.fit(module, TrainyardDataModule(ids, ["id"], batch_size=30), ckpt_path=checkpoint, weights_only=True)
        return module.seen

    each = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=1, save_top_k=-1)
    uninterrupted = seen(None, callbacks=[each])
    for step in (1, 3, 4, 6, 8):
        assert seen(tmp_path / f"step={step}.ckpt", enable_checkpointing=False) == uninterrupted[step:]
    limited = seen(None, limit_train_batches=3, enable_checkpointing=False)
    assert limited == uninterrupted[:3] + uninterrupted[4:7]


class LearningModule(LightningModule):
    """Record the rows of each step, which the weight depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.seen: list[list[int]] = []

    def training_step(self, batch: tuple[torch.Tensor]) -> torch.Tensor:
        self.seen.append(batch[0].tolist())
        return (self.weight * batch[0].float() / 100 - 0.3).pow(2).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1, momentum=0.9)


def learn(world: World, uri: str, folder: Path, checkpoint: str | None) -> tuple[list[list[int]], float]:
    """Train for three epochs, without a checkpoint saving one after each step; return the rows and the weight."""
    if world.size > 1:
        rank, size = str(world.rank), str(world.size)
        os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": "0", "WORLD_SIZE": size}
        os.environ |= {"LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        os.environ["TORCHELASTIC_RUN_ID"] = "test"
    each = ModelCheckpoint(folder, "{step}", every_n_train_steps=1, save_top_k=-1)
    module, strategy = LearningModule(), "ddp" if world.size > 1 else "auto"
    saving: dict[str, Any] = {"enable_checkpointing": False} if checkpoint else {"callbacks": [each]}
    run = trainer(folder, 3, accelerator="cpu", devices=world.size, strategy=strategy, **saving)
    data, path = TrainyardDataModule(uri, ["id"], batch_size=30), checkpoint and folder / checkpoint
    run.fit(module, data, ckpt_path=path, weights_only=True)
    return module.seen, module.weight.item()


@pytest.mark.ranks
@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.full), 2])
def test_a_resumed_trainer_has_the_rows_and_weights_of_an_undisturbed_one(
    ids: str, tmp_path: Path, processes: int
) -> None:
    """An epoch has four steps: a checkpoint within it, and one at its end, are followed by whole epochs."""
    with Workers(processes) as workers:
        undisturbed = workers(learn, ids, tmp_path, None)
        assert sorted(row for seen, _ in undisturbed for step in seen[8:] for row in step) == list(range(100))
        for step in (2, 4, 7):
            resumed = workers(learn, ids, tmp_path, f"step={step}.ckpt")
            assert resumed == [(seen[step:], weight) for seen, weight in undisturbed]


def test_each_epoch_has_an_order_of_its_own_if_dataloaders_are_reloaded(ids: str, tmp_path: Path) -> None:
    modules = [RecordingModule(), RecordingModule()]
    for reload, module in enumerate(modules):
        run = trainer(tmp_path, 3, enable_checkpointing=False, reload_dataloaders_every_n_epochs=reload)
        run.fit(module, TrainyardDataModule(ids, ["id"], batch_size=30))
    assert modules[1].seen == modules[0].seen


def test_a_further_fit_starts_with_the_next_epoch(ids: str, tmp_path: Path) -> None:
    expected, module, data = RecordingModule(), RecordingModule(), TrainyardDataModule(ids, ["id"], batch_size=30)
    trainer(tmp_path, 2, enable_checkpointing=False).fit(expected, TrainyardDataModule(ids, ["id"], batch_size=30))
    for _ in range(2):
        trainer(tmp_path, 1, enable_checkpointing=False).fit(module, data)
    assert module.seen == expected.seen


class ValidatingModule(RecordingModule):
    """Store the rows of each validation step."""

    def __init__(self) -> None:
        super().__init__()
        self.validated: list[int] = []

    def on_validation_epoch_start(self) -> None:
        self.validated = []

    def validation_step(self, batch: tuple[torch.Tensor]) -> None:
        self.validated += batch[0].tolist()


def test_validation_has_all_rows_after_the_sanity_check(tmp_path: Path) -> None:
    splits = {"train": {"id": np.arange(100)}, "validation": {"id": np.arange(90)}}
    uri, module = datasets.write(tmp_path / "ids", splits, rows_per_batch=16), ValidatingModule()
    trainer(tmp_path, 1, enable_checkpointing=False).fit(module, TrainyardDataModule(uri, ["id"], batch_size=30))
    assert module.validated == list(range(90))


def test_options_that_select_rows_apply_to_training_only(tmp_path: Path) -> None:
    rare = {"x": np.zeros((300, 2), np.float32), "label": (np.arange(300) % 10 == 0).astype(np.int64)}
    uri = datasets.write(tmp_path / "dataset", {"train": rare, "validation": rare})
    data = TrainyardDataModule(uri, ["label"], batch_size=300, balance="label")
    ((sampled,),), ((validation,),) = data.train_dataloader(), data.val_dataloader()
    assert sampled.sum() == 150
    assert validation.sum() == 30


class Using(Net):
    """A module that uses a part of Lightning in each step."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self.part = part

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        if self.part == "print":
            self.print("a step")
        elif self.part == "experiment":
            self.logger.experiment.add_scalar("a", 1)  # type: ignore[union-attr]
        else:
            getattr(self, self.part)()
        return super().training_step(batch, batch_idx)


def using(part: str) -> Recipe:
    return lightning.from_lightning(Using(part), features="x", label="label")


def train_using(world: World | None, batches: str, model: str, part: str) -> FitResult:
    return fit(f"{__name__}:using", dataset=batches, model=model, world=world, epochs=1, recipe_params={"part": part})


@pytest.mark.parametrize("part", ["optimizers", "lr_schedulers", "trainer", "experiment"])
def test_a_step_that_uses_lightnings_trainer_is_refused(batches: str, tmp_path: Path, part: str) -> None:
    with pytest.raises(TrainyardError, match=r"Using\.training_step uses a part of Lightning's Trainer: "):
        train_using(None, batches, str(tmp_path), part)


def test_a_step_may_print(batches: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train_using(None, batches, str(tmp_path), "print")
    assert "a step" in capsys.readouterr().out


class Indexed(Net):
    """A module whose loss depends on the index of the batch."""

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        x, label = batch
        return nn.functional.cross_entropy(self(x), label) * (batch_idx + 1)


@pytest.mark.slow
def test_a_compiled_step_is_not_compiled_for_each_index_of_a_batch() -> None:
    """After eight times torch.compile would give up. The first two indices, 0 and 1, are compiled as constants."""
    counter = CompileCounter()
    recipe = lightning.from_lightning(Indexed(), features="x", label="label")
    network = Network(recipe.model, (Column(name="x", kind="tensor", type="float", shape=(8,)),), {})
    compiled = torch.compile(network, backend=counter)
    rows = {name: torch.from_numpy(values) for name, values in datasets.blobs(5).items()}
    assert recipe.step
    losses = [recipe.step(compiled, rows).item() for _ in range(12)]
    assert losses == pytest.approx([losses[0] * number for number in range(1, 13)], rel=1e-5)
    assert counter.frame_count <= 3
