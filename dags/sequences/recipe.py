"""A network that averages the embeddings of a sentence's words."""

from __future__ import annotations

from torch import Tensor, nn

from trainyard.trainer import Recipe


class BagOfWords(nn.Module):
    def __init__(self, vocabulary: int, width: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.output = nn.Linear(width, classes)

    def forward(self, words: Tensor, words_mask: Tensor) -> Tensor:
        """Return the logits (rows, classes) of padded sentences (rows, longest)."""
        present = words_mask.unsqueeze(2)
        mean = (self.embedding(words) * present).sum(1) / present.sum(1)
        return self.output(mean)


def bag_of_words(vocabulary: int, classes: int, width: int = 32) -> Recipe:
    return Recipe(
        model=BagOfWords(vocabulary, width, classes),
        features="words",
        label="label",
        classes=classes,
        sequences="padded",
        learning_rate=0.01,
        metrics=["accuracy"],
        predict=lambda output: {"chapter": output.argmax(1)},
    )
