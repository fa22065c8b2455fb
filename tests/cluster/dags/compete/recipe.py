"""A linear model of four features."""

from torch import nn

from trainyard.trainer.model.recipe import Recipe


def linear() -> Recipe:
    return Recipe(model=nn.Linear(4, 2), features="x", label="label", loss=nn.CrossEntropyLoss())
