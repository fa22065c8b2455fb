"""Mixed precision and compiled models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.gpu import recipes
from tests.gpu.recipes import Mlp
from trainyard.trainer.loop.fit import FitResult, fit
from trainyard.trainer.model.artifacts.trained_model import load_model

pytestmark = [pytest.mark.full, pytest.mark.slow]


def train(batches: str, folder: Path, **options: Any) -> FitResult:
    Mlp.dtypes.clear()
    return fit(
        f"{recipes.__name__}:mlp", dataset=batches, model=str(folder), batch_size=50, **{"epochs": 4} | options
    )  # fmt: skip


def get_losses(fitted: FitResult) -> list[float]:
    return [epoch[name] for epoch in fitted.history.epochs for name in ("loss", "validation_loss")]


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_a_model_learns_in_every_precision(device: str, batches: str, tmp_path: Path, precision: str) -> None:
    fitted = train(batches, tmp_path, precision=precision)
    assert Mlp.dtypes == {getattr(torch, precision)}, "the forward pass computes in it"
    assert fitted.history.epochs[-1]["validation_loss"] < 0.2
    weights = load_model(str(tmp_path)).recipe.model.state_dict().values()
    assert {weight.dtype for weight in weights} == {torch.float32}
    assert {weight.device.type for weight in weights} == {device}


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_clipping_and_micro_batches_change_little_in_mixed_precision(
    device: str, batches: str, tmp_path: Path, precision: str
) -> None:
    expected = get_losses(train(batches, tmp_path / "a", clip_norm=1.0))
    losses = get_losses(train(batches, tmp_path / "b", clip_norm=1.0, precision=precision, micro_batches=3))
    assert losses == pytest.approx(expected, rel=0.1, abs=0.02)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_compiled_model_has_the_losses_of_the_model(
    device: str, batches: str, tmp_path: Path, precision: str
) -> None:
    expected = get_losses(train(batches, tmp_path / "a", epochs=2, precision=precision))
    compiled = get_losses(train(batches, tmp_path / "b", epochs=2, precision=precision, compile=True))
    assert compiled == pytest.approx(expected, rel=0.05, abs=0.01)


def test_the_device_has_the_losses_of_a_cpu(
    device: str, batches: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rows in the same order from the same weights."""
    losses = get_losses(train(batches, tmp_path / "device"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert losses == pytest.approx(get_losses(train(batches, tmp_path / "cpu")), rel=1e-2, abs=1e-3)
