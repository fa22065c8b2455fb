"""A script with Lightning's Trainer: `RESULTS EPOCHS FAULT`; FAULT is "none", or the epoch that kills rank 1."""

import hashlib
import json
import os
import signal
import sys
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainyard.trainer import report_metrics, store_checkpoints

results, epochs, fault = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 10))

    def training_step(self, batch, _):
        images, labels = batch
        return nn.functional.cross_entropy(self.layers(images), labels)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.01)


class Store(Checkpoint):
    """Lightning calls it after the callbacks that save a checkpoint, which stand before it."""

    def on_train_epoch_end(self, trainer, module):
        report_metrics(epoch=trainer.current_epoch + 1, loss=trainer.callback_metrics.get("loss", 0.0))
        store_checkpoints()
        with (results / f"epochs {trainer.global_rank}").open("a") as file:
            file.write(f"{trainer.current_epoch + 1}\n")

    def on_train_epoch_start(self, trainer, module):
        is_first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
        if is_first and fault == str(trainer.current_epoch + 1) and trainer.global_rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)


lightning.seed_everything(0)
digits = load_digits()
rows = TensorDataset(torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target))
saving = ModelCheckpoint(os.environ["TRAINYARD_CHECKPOINTS"], save_last=True, save_top_k=1)
trainer = lightning.Trainer(
    max_epochs=epochs, accelerator="cpu", strategy="ddp", devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    num_nodes=int(os.environ["GROUP_WORLD_SIZE"]), callbacks=[saving, Store()], logger=False,
    enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
net = Net()
trainer.fit(net, DataLoader(rows, batch_size=64, shuffle=True), ckpt_path="last")
weights = b"".join(parameter.detach().numpy().tobytes() for parameter in net.parameters())
(results / f"{trainer.global_rank}.json").write_text(json.dumps(hashlib.sha256(weights).hexdigest()))
