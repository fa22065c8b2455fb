"""A script with the Trainer of transformers: `RESULTS FAULT`; FAULT is "none" or "kill", of rank 1 in step 12 of 20."""

import json
import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from trainyard.trainer import report_metrics, store_checkpoints

results, fault = Path(sys.argv[1]), sys.argv[2]
rank, folder = os.environ["RANK"], os.environ["TRAINYARD_CHECKPOINTS"]
is_first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 1))

    def forward(self, x, labels):
        outputs = self.layers(x)
        return {"loss": nn.functional.mse_loss(outputs, labels), "logits": outputs}


class Store(TrainerCallback):
    def on_save(self, args, state, control, **_):
        store_checkpoints()
        report_metrics(step=state.global_step)

    def on_step_begin(self, args, state, control, **_):
        if fault == "kill" and state.global_step == 12 and rank == "1" and is_first:
            os.kill(os.getpid(), signal.SIGKILL)


torch.manual_seed(0)
rows = [{"x": torch.randn(4), "labels": torch.randn(1)} for _ in range(80)]
arguments = TrainingArguments(
    folder, num_train_epochs=2, save_steps=5, save_total_limit=2, per_device_train_batch_size=4, use_cpu=True,
    report_to=[], seed=1,
)  # fmt: skip
trainer = Trainer(Net(), arguments, train_dataset=rows, callbacks=[Store()])
last = get_last_checkpoint(folder)
trainer.train(resume_from_checkpoint=last)
weights = [parameter.tolist() for parameter in trainer.model.parameters()]
(results / f"{rank}.json").write_text(json.dumps({"weights": weights, "resumed": last is not None}))
