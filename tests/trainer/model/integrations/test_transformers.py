"""A model of transformers is the model of a recipe as it is: keyword arguments, and logits in its output."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from tests.trainer import datasets
from trainyard.trainer import Dataset
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.artifacts.trained_model import load_model
from trainyard.trainer.model.recipe import Recipe

pytestmark = pytest.mark.slow


def bert() -> Recipe:
    config = BertConfig(
        vocab_size=10, max_position_embeddings=64, num_labels=3, hidden_size=16, intermediate_size=16,
        num_attention_heads=2, num_hidden_layers=1,
    )  # fmt: skip
    return Recipe(
        model=BertForSequenceClassification(config),
        features={"input_ids": "tokens", "attention_mask": "tokens_mask"},
        label="label",
        classes=3,
        learning_rate=1e-2,
        metrics=["accuracy"],
    )


def test_a_model_of_transformers_trains_and_gives_its_own_logits(tmp_path: Path) -> None:
    uri = datasets.write(
        tmp_path / "dataset", {"train": datasets.sequences(300), "validation": datasets.sequences(90, seed=1)}
    )
    fitted = fit(f"{__name__}:bert", dataset=uri, model=str(tmp_path / "model"), epochs=3, bucket_by="tokens")
    assert fitted.metrics["accuracy"] > 0.8, "a third of the rows are of one class"

    [batch] = Dataset(uri, "validation", ["tokens", "label"], batch_size=90, shuffle=False)
    model = load_model(str(tmp_path / "model"))
    own = model.recipe.model.eval()
    with torch.no_grad():
        expected = own(input_ids=batch["tokens"], attention_mask=batch["tokens_mask"]).logits
    rows = datasets.sequences(90, seed=1)["tokens"]
    torch.testing.assert_close(model.output({"tokens": rows}).cpu(), expected, rtol=1e-4, atol=1e-5)
    accuracy = (expected.argmax(1) == batch["label"]).float().mean().item()
    assert accuracy == pytest.approx(fitted.metrics["accuracy"])
