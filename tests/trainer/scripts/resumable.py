"""A script that resumes from the folder of its checkpoints: `LOSSES EPOCHS FAULT`.

Rank 0 appends "EPOCH LOSS" to LOSSES; FAULT is "none", or the epoch in which rank 1 is killed, once; with "hang" before
it, it waits.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from trainyard.trainer import report_metrics, store_checkpoints

losses, epochs, fault = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
distributed.init_process_group("gloo")
rank, size = distributed.get_rank(), distributed.get_world_size()
torch.manual_seed(0)
x = torch.randn(64, 8)
y = x.sum(1, keepdim=True)
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), 0.05)
first, checkpoint = 1, Path(os.environ["TRAINYARD_CHECKPOINTS"], "states", "last.pt")
if checkpoint.exists():
    state = torch.load(checkpoint)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["epoch"] + 1
for epoch in range(first, epochs + 1):
    if fault.removeprefix("hang") == str(epoch) and rank == 1 and not (done := losses.with_name("done")).exists():
        done.touch()
        while fault.startswith("hang"):
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x[rank::size]), y[rank::size])
    loss.backward()
    optimizer.step()
    distributed.all_reduce(loss := loss.detach() / size)
    report_metrics(epoch=epoch, loss=loss)
    if rank == 0:
        with losses.open("a") as file:
            file.write(f"{epoch} {loss.item():.9g}\n")
        checkpoint.parent.mkdir(exist_ok=True)
        torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint)
    store_checkpoints()
distributed.destroy_process_group()
