from pathlib import Path

import lightning as L
import measure
import network
import numpy as np
import pyarrow.parquet as pq
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import distributed, nn, optim
from torch.utils.data import DataLoader, IterableDataset


class Rows(IterableDataset):
    def __init__(self, fold):
        self.files = sorted(Path(network.SOURCE, f"fold={fold}").glob("*.parquet"))

    def __iter__(self):
        for file in self.files[distributed.get_rank() :: distributed.get_world_size()]:
            table = pq.read_table(file)
            images = np.asarray(table["image"].combine_chunks().flatten()).reshape(-1, network.VALUES) / np.float32(255)
            labels = np.asarray(table["label"])
            order = torch.randperm(len(labels))
            for row in order:
                yield images[row], labels[row]


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model, self.loss_function = network.build(), nn.CrossEntropyLoss()

    def training_step(self, batch, _):
        images, labels = batch
        return self.loss_function(self.model(images), labels)

    def test_step(self, batch, _):
        images, labels = batch
        correct = (self.model(images).argmax(1) == labels).float().mean()
        self.log("accuracy", correct, batch_size=len(labels), sync_dist=True)

    def configure_optimizers(self):
        optimizer = optim.SGD(self.parameters(), network.LEARNING_RATE, network.MOMENTUM)
        measure.watch(optimizer)
        return optimizer


if __name__ == "__main__":
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=network.EPOCHS,
        default_root_dir=network.STORAGE,
        callbacks=[ModelCheckpoint(network.STORAGE, save_last=True)],
        logger=False,
    )
    last = Path(network.STORAGE, "last.ckpt")
    model = Classifier()
    trainer.fit(model, DataLoader(Rows("train"), network.LOCAL_BATCH), ckpt_path=last if last.exists() else None)
    (metrics,) = trainer.test(model, DataLoader(Rows("test"), network.LOCAL_BATCH))
    if trainer.is_global_zero:
        measure.report_accuracy(metrics["accuracy"])
