"""Small data in the formats that published scripts read, written without a network.

The images are the 1,797 handwritten digits of scikit-learn. The sentences are made of a few words; their label is
whether the second one has the word "not".
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

SEED = 7
WORDS = ("the", "model", "worker", "table", "node", "reads", "writes", "keeps", "a", "row", "file", "step")
NEGATION = "not"
PROMPT = "O God, O God!"
"""What minGPT continues; the text has to have its letters."""
NOT_SHIPPED = ("data", "run")
"""What the folder of MNIST has for scripts that read a relative path. Airflow refuses links to folders above."""
METRIC = '''"""Accuracy of predictions, under the name of the metric of GLUE, which only a network has."""

import datasets
import evaluate


class Glue(evaluate.Metric):
    def _info(self):
        features = datasets.Features({name: datasets.Value("int64") for name in ("predictions", "references")})
        return evaluate.MetricInfo(description=__doc__, citation="", features=features)

    def _compute(self, predictions, references):
        return {"accuracy": sum(p == r for p, r in zip(predictions, references)) / len(references)}
'''
CARD = """---
configs:
- config_name: mrpc
  data_files:
  - split: train
    path: train.jsonl
  - split: validation
    path: validation.jsonl
---
"""


def write_mnist(folder: Path, train: int = 6_000, test: int = 1_000) -> None:
    """Write digits of 28 x 28 pixels as MNIST's four files, `MNIST/raw` and `data/MNIST/raw` below the folder.

    Scripts that have no argument for their data read `./data` or `../data`: the latter in the folder `run`.

    Args:
        folder: The folder.
        train: How many images the training set has. They are repeated, each time moved by up to two pixels.
        test: How many images the test set has, of digits that the training set does not have.
    """
    digits = load_digits()
    # Each pixel three times, within a border of two.
    images = np.pad(digits.images.repeat(3, 1).repeat(3, 2) * 15.9375, ((0, 0), (2, 2), (2, 2))).astype(np.uint8)
    known = len(images) * 4 // 5
    generator = np.random.default_rng(SEED)
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    (folder / "data").symlink_to(".")
    (folder / "run").mkdir()
    for name, rows, first, last in (("train", train, 0, known), ("t10k", test, known, len(images))):
        chosen, moves = generator.integers(first, last, rows), generator.integers(-2, 3, (rows, 2))
        moved = [np.roll(images[row], move, (0, 1)) for row, move in zip(chosen, moves, strict=True)]
        pixels, labels = np.stack(moved), digits.target[chosen].astype(np.uint8)
        (raw / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 0x803, rows, 28, 28) + pixels.tobytes())
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, rows) + labels.tobytes())


def write_images(folder: Path) -> None:
    """Write digits as JPEG files of 64 x 64 pixels, `train/CLASS` and `val/CLASS` below the folder."""
    digits = load_digits()
    for number, (image, label) in enumerate(zip(digits.images[:240], digits.target, strict=False)):
        path = folder / ("train" if number < 160 else "val") / f"digit{label}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 15.9375).astype(np.uint8)).resize((64, 64)).convert("RGB").save(path)


def write_pets(folder: Path) -> None:
    """Write digits as JPEG files LABEL_NUMBER.jpg in the folder, as the pets of Accelerate's examples are."""
    digits = load_digits()
    folder.mkdir(parents=True)
    for number, (image, label) in enumerate(zip(digits.images[:80], digits.target, strict=False)):
        Image.fromarray((image * 15.9375).astype(np.uint8)).convert("RGB").save(folder / f"digit{label}_{number}.jpg")


def write_text(folder: Path) -> None:
    """Write `input.txt`, sentences of a few words, and `gpt`: a tokenizer, and the configuration of a small GPT-2."""
    from transformers import GPT2Config

    generator = random.Random(SEED)
    folder.mkdir(parents=True)
    sentences = "\n".join(_build_sentence(generator, number % 3 == 0) for number in range(4_000))
    (folder / "input.txt").write_text(f"{PROMPT}\n{sentences}")
    tokens = _write_tokenizer(folder / "gpt")
    GPT2Config(
        vocab_size=tokens, n_positions=64, n_embd=64, n_layer=2, n_head=2, bos_token_id=None, eos_token_id=None
    ).save_pretrained(folder / "gpt")


def write_sentences(folder: Path) -> None:
    """Write what Accelerate's examples download: pairs of sentences, a small BERT with random weights, and a metric."""
    from transformers import BertConfig, BertForSequenceClassification, set_seed
    from transformers.utils.logging import disable_progress_bar

    generator = random.Random(SEED)
    data = folder / "nyu-mll" / "glue"
    data.mkdir(parents=True)
    (data / "README.md").write_text(CARD)
    for split, rows in (("train", 3_668), ("validation", 408)):
        labels = [generator.randrange(2) for _ in range(rows)]
        lines = [
            {
                "sentence1": _build_sentence(generator, False), "sentence2": _build_sentence(generator, bool(label)),
                "label": label, "idx": index,
            }
            for index, label in enumerate(labels)
        ]  # fmt: skip
        (data / f"{split}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (folder / "glue").mkdir()
    (folder / "glue" / "glue.py").write_text(METRIC)
    set_seed(SEED)
    disable_progress_bar()  # type: ignore[no-untyped-call]
    config = BertConfig(
        vocab_size=_write_tokenizer(folder / "bert-base-cased"), hidden_size=256, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=512, max_position_embeddings=64,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder / "bert-base-cased")


WRITERS: Mapping[str, Callable[[Path], None]] = {
    "mnist": write_mnist,
    "large mnist": lambda folder: write_mnist(folder, 60_000, 10_000),
    "images": write_images,
    "pets": write_pets,
    "text": write_text,
    "sentences": write_sentences,
}


def _build_sentence(generator: random.Random, is_negated: bool) -> str:
    words = generator.choices(WORDS, k=8)
    if is_negated:
        words[generator.randrange(8)] = NEGATION
    return " ".join(words)


def _write_tokenizer(folder: Path) -> int:
    """Write a tokenizer that splits text at spaces, and return the number of its tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    names = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    vocabulary = {word: number for number, word in enumerate((*names, *WORDS, NEGATION))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))  # noqa: S106 - a token of text
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    first, last = (("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"]))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[first, last]
    )
    special = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), names, strict=True))
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **special)  # type: ignore[no-untyped-call]
    wrapped.save_pretrained(folder)
    return len(vocabulary)
