"""A script whose ranks each write a part of their state: `RESULTS FAULT`.

FAULT is "none", or what happens in the third round.

The states are those of torch's distributed checkpoint, which writes a file of each rank, and one of rank 0 for all.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch
from torch import distributed
from torch.distributed import checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from trainyard.trainer import store_checkpoints

results, fault = Path(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo")
rank, size = distributed.get_rank(), distributed.get_world_size()
folder = Path(os.environ["TRAINYARD_CHECKPOINTS"], "state")
state = {"total": distribute_tensor(torch.zeros(8), init_device_mesh("cpu", (size,)), [Shard(0)]), "round": 0}
if folder.exists():
    checkpoint.load(state, checkpoint_id=folder)
while state["round"] < 4:
    if state["round"] == 2 and rank == 1 and fault == "kill" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    if state["round"] == 2 and fault == "raise":
        raise RuntimeError("out of luck")
    state["total"] += state["round"] + 1
    state["round"] += 1
    checkpoint.save(state, checkpoint_id=folder)
    store_checkpoints()
total = state["total"].full_tensor().tolist()
(results / f"{rank}.json").write_text(json.dumps({"total": total, "size": size}))
distributed.destroy_process_group()
