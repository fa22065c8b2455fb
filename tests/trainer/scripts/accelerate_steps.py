"""A script with Accelerate: `RESULTS FAULT`; FAULT is "none" or "kill", of rank 1 in the fifth of eight steps."""

import json
import os
import signal
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn

from trainyard.trainer import store_checkpoints

results, fault = Path(sys.argv[1]), sys.argv[2]
rank, state = os.environ["RANK"], Path(os.environ["TRAINYARD_CHECKPOINTS"], "state")
is_first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"


class Steps:
    done = 0

    def state_dict(self):
        return {"done": self.done}

    def load_state_dict(self, values):
        self.done = values["done"]


accelerator, steps = Accelerator(cpu=True), Steps()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 1))
model, optimizer = accelerator.prepare(net, torch.optim.Adam(net.parameters(), 0.1))
accelerator.register_for_checkpointing(steps)
if resumed := state.exists():
    accelerator.load_state(str(state))
while steps.done < 8:
    if fault == "kill" and steps.done == 4 and rank == "1" and is_first:
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad()
    accelerator.backward(model(torch.ones(8, 4)).pow(2).mean())
    optimizer.step()
    steps.done += 1
    accelerator.save_state(str(state))
    store_checkpoints()
weights = [parameter.tolist() for parameter in model.parameters()]
(results / f"{rank}.json").write_text(json.dumps({"weights": weights, "resumed": resumed}))
