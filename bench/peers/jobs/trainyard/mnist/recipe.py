import measure
import network
from torch import nn, optim
from torchmetrics.classification import MulticlassAccuracy

from trainyard.trainer import Recipe


def convnet() -> Recipe:
    return Recipe(
        model=network.build(),
        features="image",
        label="label",
        classes=10,
        normalize="all",
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: measure.watch(  # not counted
            optim.SGD(parameters, network.LEARNING_RATE, network.MOMENTUM)
        ),  # not counted
        metrics={"accuracy": MulticlassAccuracy(10, average="micro")},
    )
