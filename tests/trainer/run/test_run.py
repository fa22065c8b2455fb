"""Training loops of the user's own, with the guarantees of a recipe."""

from __future__ import annotations

import itertools
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer import datasets
from tests.trainer.workers import Workers
from trainyard.errors import TrainyardError
from trainyard.trainer.loop.fit import FitResult, fit
from trainyard.trainer.model.artifacts.trained_model import load_model
from trainyard.trainer.run.signals.interruptions import TerminatedError
from trainyard.trainer.world import World

LOOPS = "tests.trainer.run.loops"
ROWS = 601
"""The last of 13 batches of 50 rows has one row: in a group, most workers have none of it."""


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("data") / "dataset"
    return datasets.write(directory, {"train": datasets.blobs(ROWS), "validation": datasets.blobs(101, seed=1)})


def train(world: World | None, batches: str, model: str, loop: str, **options: Any) -> FitResult:
    defaults = {"epochs": 3, "batch_size": 50, "seed": 7}
    path = None if loop == "recipe" else f"{LOOPS}:{loop}"
    recipe = "tests.trainer.recipes:linear" if loop == "recipe" else None
    return fit(recipe, loop=path, dataset=batches, model=model, world=world, **defaults | options)


def get_epochs(world: World | None, batches: str, model: str, loop: str, **options: Any) -> list[dict[str, float]]:
    """Return the metrics of each epoch but the speed."""
    epochs = train(world, batches, model, loop, **options).history.epochs
    return [{k: v for k, v in epoch.items() if k not in ("rows_per_second", "bytes_per_step")} for epoch in epochs]


def weights(model: str) -> dict[str, torch.Tensor]:
    return load_model(model).recipe.model.state_dict()


def test_a_loop_and_a_recipe_end_with_the_same_weights_bit_by_bit(batches: str, tmp_path: Path) -> None:
    by_recipe = train(None, batches, str(tmp_path / "recipe"), "recipe")
    by_loop = train(None, batches, str(tmp_path / "loop"), "plain")
    assert by_recipe.artifact and by_loop.artifact
    assert by_recipe.artifact.weights_sha256 == by_loop.artifact.weights_sha256
    assert by_recipe.history.best == by_loop.history.best
    for name in ("loss", "validation_loss"):
        assert [epoch[name] for epoch in by_recipe.history.epochs] == [e[name] for e in by_loop.history.epochs]


@pytest.mark.ranks
def test_two_workers_do_what_one_does(batches: str, tmp_path: Path) -> None:
    """Also in the last batch, of which one has no row, and in parts."""
    loops = ("plain", "in_parts", "gan", "lbfgs", "distillation", "averaged")
    alone = {loop: get_epochs(None, batches, str(tmp_path / loop), loop) for loop in loops}
    with Workers(2) as workers:
        by_recipe = workers(get_epochs, batches, str(tmp_path / "2 recipe"), "recipe")
        for loop in loops:
            first, second = workers(get_epochs, batches, str(tmp_path / f"2 {loop}"), loop)
            assert first == second
            for epoch, expected in zip(first, alone[loop], strict=True):
                assert epoch == pytest.approx(expected, rel=1e-3, abs=1e-5)
            if loop == "plain":
                assert [epoch["loss"] for epoch in first] == [epoch["loss"] for epoch in by_recipe[0]]
    recipe, plain = weights(str(tmp_path / "2 recipe")), weights(str(tmp_path / "2 plain"))
    assert all(torch.equal(recipe[name], plain[name]) for name in recipe)


def train_clipped(world: World | None, batches: str, folder: str) -> None:
    """Train a recipe that clips gradients, and a loop that does so, in two precisions."""
    for precision in ("float32", "float16"):
        options: dict[str, Any] = {"precision": precision, "epochs": 1}
        train(world, batches, f"{folder}/recipe {precision}", "recipe", clip_norm=0.2, **options)
        train(world, batches, f"{folder}/loop {precision}", "clipped", loop_params={"precision": precision}, **options)


@pytest.mark.ranks
def test_a_loop_clips_and_scales_as_a_recipe_bit_by_bit(batches: str, tmp_path: Path) -> None:
    train_clipped(None, batches, f"{tmp_path}/1")
    with Workers(2) as workers:
        workers(train_clipped, batches, f"{tmp_path}/2")
    for size, precision in itertools.product((1, 2), ("float32", "float16")):
        recipe, loop = (weights(f"{tmp_path}/{size}/{kind} {precision}") for kind in ("recipe", "loop"))
        assert all(torch.equal(recipe[name], loop[name]) for name in recipe)


@pytest.mark.parametrize("loop", ["in_parts", "gan", "lbfgs", "distillation", "averaged"])
def test_a_loop_learns_and_publishes_a_model(batches: str, tmp_path: Path, loop: str) -> None:
    fitted = train(None, batches, str(tmp_path), loop, precision="bfloat16" if loop == "averaged" else "float32")
    losses = [epoch["loss"] for epoch in fitted.history.epochs]
    assert losses[-1] < losses[0]
    assert load_model(str(tmp_path)).predict(datasets.blobs(5))


def train_with_fault(
    world: World, batches: str, folder: str, fault: str, workers: int | None = None, **options: Any
) -> list[dict[str, float]]:
    if fault and world.is_main:
        Path(folder, "fault").write_text(fault)
    return get_epochs(
        world, batches, f"{folder}/model", "plain", checkpoints=f"{folder}/checkpoints", checkpoint_steps=3,
        loop_params={"fault": f"{folder}/fault", "losses": f"{folder}/losses"}, workers=workers, **options,
    )  # fmt: skip


def read_losses(folder: Path) -> dict[str, float]:
    """Return the loss of each step, of those that were done again the last one."""
    lines = [line.rsplit(" ", 1) for line in (folder / "losses").read_text().splitlines()]
    return {step: float(loss) for step, loss in lines}


@pytest.mark.ranks
def test_a_killed_loop_resumes_with_other_workers_as_if_undisturbed(batches: str, tmp_path: Path) -> None:
    for name in ("undisturbed", "killed"):
        (tmp_path / name).mkdir()
    expected = train_with_fault(World(), batches, str(tmp_path / "undisturbed"), "")
    folder = tmp_path / "killed"
    with Workers(2) as workers:
        outcomes = workers.start(train_with_fault, batches, str(folder), f"0 7 1 {signal.SIGKILL}").outcomes()
    assert outcomes[1] is None, outcomes
    with pytest.raises(TerminatedError, match="The state is saved"):
        train_with_fault(World(), batches, str(folder), f"1 5 0 {signal.SIGTERM}")
    with Workers(3) as workers:
        resumed = workers(train_with_fault, batches, str(folder), "")
    assert resumed[0] == resumed[1] == resumed[2]
    for epoch, metrics in zip(resumed[0], expected, strict=True):
        assert epoch == pytest.approx(metrics, rel=1e-3)
    losses = read_losses(tmp_path / "undisturbed")
    assert len(losses) == 3 * 13
    assert read_losses(folder) == pytest.approx(losses, rel=1e-3)
    assert weights(f"{folder}/model")["weight"].numpy() == pytest.approx(
        weights(f"{tmp_path}/undisturbed/model")["weight"].numpy(), rel=1e-3
    )


@pytest.mark.parametrize("at", ["0 4 0", "1 12 0"])
def test_a_loop_that_sigterm_ended_resumes_exactly(batches: str, tmp_path: Path, at: str) -> None:
    """Within an epoch, and after its last step."""
    for name in ("undisturbed", "terminated"):
        (tmp_path / name).mkdir()
    expected = train_with_fault(World(), batches, str(tmp_path / "undisturbed"), "")
    folder = str(tmp_path / "terminated")
    with pytest.raises(TerminatedError, match="The state is saved"):
        train_with_fault(World(), batches, folder, f"{at} {signal.SIGTERM}")
    assert train_with_fault(World(), batches, folder, "") == expected
    assert (tmp_path / "terminated/losses").read_text() == (tmp_path / "undisturbed/losses").read_text()
    assert weights(f"{folder}/model")["bias"].equal(weights(f"{tmp_path}/undisturbed/model")["bias"])


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("untracked", r"a network of class Linear is trained, but not tracked.*run\.track\(\)"),
        ("not stateful", r"track\(count=\.\.\.\): a int has no state_dict\(\)"),
        ("noise", r"run\.model\('tests.*noise'\): features 'noise' is not a column.*run\.prepare\(\)"),
        ("tracked twice", r"run\.track\(\) was called twice"),
        ("published early", r"run\.publish\(\) was called before run\.steps\(\)"),
        ("reserved", r"report\(epoch=\.\.\.\): each epoch has 'epoch' already"),
        ("no part", r"its last part had not.*each of batch\.parts\(\)"),
        ("no mean", r"shape"),
        ("vector", r"report\(loss=\.\.\.\) got a tensor of shape \[50\]; write its mean"),
        ("steps twice", r"run\.steps\(\) was called twice"),
        ("trained on validation", r"backward\(\) of a batch of run\.batches\(\).*run\.steps\(\)"),
        ("no split", r"run\.batches\('test'\): .* has no such split; it has train, validation"),
        ("published other", r"run\.publish\(\) got a Linear that run\.model\(\) has not returned"),
        ("nothing published", r"returned without run\.publish\(network\)"),
    ],
)
def test_a_mistake_in_a_loop_is_refused(batches: str, tmp_path: Path, mistake: str, message: str) -> None:
    with pytest.raises(TrainyardError, match=message):
        train(None, batches, str(tmp_path), "mistaken", epochs=1, loop_params={"mistake": mistake})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "diloco"}, r"fit: strategy='diloco' with loop=.*write strategy='allreduce'.*strategy='fsdp'"),
        (
            {"strategy": {"name": "allreduce", "compression": "fp16"}},
            r"'allreduce' with loop=.*without options",
        ),
        ({"precision": "float16"}, r"precision='float16', but no torch\.amp\.GradScaler is tracked.*'bfloat16'"),
        ({"precision": "bfloat16"}, r"precision='bfloat16', but the loop has not used it.*run\.autocast\(\)"),
        ({"clip_norm": 1.0}, r"clip_norm with loop=: call torch\.nn\.utils\.clip_grad_norm_"),
        ({"compile": True}, r"compile=True with loop="),
        ({"epoch_models": True}, r"epoch_models=True with loop="),
        ({"monitor": "accuracy"}, r"monitor='accuracy' does not say.*monitor_mode"),
        ({"monitor": "f1", "monitor_mode": "max"}, r"monitor='f1', but the loop reported loss,.*report\(f1=\.\.\.\)"),
        ({"recipe_params": {"classes": 3}}, r"recipe_params are those of recipe="),
        ({"loop_params": {"learning_rate": object()}}, r"fit: loop_params\['learning_rate'\]"),
    ],
)
def test_an_option_that_a_loop_does_not_have_is_refused(
    batches: str, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TrainyardError, match=message):
        train(None, batches, str(tmp_path), "plain", epochs=1, **options)


def test_either_a_recipe_or_a_loop_is_needed(batches: str, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match="write recipe= or loop=, and not both"):
        fit("a:b", loop="c:d", dataset=batches, model=str(tmp_path))
    with pytest.raises(TrainyardError, match="write recipe= or loop=, and not both"):
        fit(dataset=batches, model=str(tmp_path))
    with pytest.raises(TrainyardError, match=r"loop 'tests\.nothing:train' cannot be imported: ModuleNotFoundError"):
        fit(loop="tests.nothing:train", dataset=batches, model=str(tmp_path))


def make_mistake(world: World, batches: str, model: str, mistake: str) -> str:
    with pytest.raises(TrainyardError) as error:
        train(world, batches, model, "mistaken", epochs=1, loop_params={"mistake": mistake})
    return str(error.value)


@pytest.mark.ranks
def test_workers_whose_gradients_are_not_averaged_are_noticed(batches: str, tmp_path: Path) -> None:
    with Workers(2) as workers:
        for message in workers(make_mistake, batches, str(tmp_path), "own backward"):
            assert "do not have the same model any more" in message
            assert "the loop calls loss.backward() instead of batch.backward(loss)" in message


def test_a_checkpoint_of_other_objects_is_refused(batches: str, tmp_path: Path) -> None:
    name, options = tmp_path / "name", {"epochs": 1, "checkpoints": str(tmp_path / "checkpoints")}
    for tracked, message in (("net", None), ("other", r"track\(\): 'other' is new, 'net' is missing, compared with")):
        name.write_text(tracked)
        with pytest.raises(TrainyardError, match=message) if message else nullcontext():
            train(None, batches, str(tmp_path / "model"), "renamed", loop_params={"name": str(name)}, **options)


def test_a_loop_that_is_left_counts_what_was_done(batches: str, tmp_path: Path) -> None:
    history = train(None, batches, str(tmp_path), "left").history
    assert len(history.epochs) == 2
    assert history.stopped_early


def test_early_stopping_ends_a_loop(batches: str, tmp_path: Path) -> None:
    """Its rate is a text, as a template renders it."""
    history = train(
        None, batches, str(tmp_path), "plain", epochs=50, early_stopping=2, loop_params={"learning_rate": "1e-12"}
    ).history
    assert history.stopped_early
    assert len(history.epochs) < 50


def draw(world: World, batches: str, model: str, file: str) -> None:
    train(world, batches, model, "drawing", epochs=1, loop_params={"file": file})


@pytest.mark.ranks
def test_random_numbers_of_rows_do_not_depend_on_the_workers(batches: str, tmp_path: Path) -> None:
    for name in ("alone", "group"):
        (tmp_path / name).mkdir()
    draw(World(), batches, str(tmp_path / "model"), f"{tmp_path}/alone/r")
    with Workers(3) as workers:
        workers(draw, batches, str(tmp_path / "model"), f"{tmp_path}/group/r")
    for step in range(13):
        by_worker = sorted(
            (tmp_path / "group").glob(f"r-0-{step}-*"), key=lambda path: int(path.name.rpartition("-")[2])
        )
        alone = torch.load(tmp_path / f"alone/r-0-{step}-0")
        assert torch.equal(torch.cat([torch.load(path) for path in by_worker]), alone)
