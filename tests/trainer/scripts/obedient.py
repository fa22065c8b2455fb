"""A script that ends as its command line says: `FOLDER RANK HOW [connected]`; the other workers wait for each other.

Like other scripts it leaves a process group and variables behind. The named worker adds a line to the file `starts`
each time.
"""

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

folder, rank, how, *connected = sys.argv[1:]
own_rank = os.environ["RANK"]
if own_rank == rank:
    with Path(folder, "starts").open("a") as starts:
        starts.write(os.environ["TORCHELASTIC_RESTART_COUNT"] + "\n")
if connected or own_rank != rank:
    dist.init_process_group("gloo")
if own_rank == rank and not Path(folder, "done").exists():
    if how == "raise":
        raise RuntimeError("the data is bad\n\nsecond line")
    if how == "kill once":
        Path(folder, "done").touch()
    if how.startswith("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(int(how) if how.isdigit() else how)
dist.all_reduce(torch.ones(1))
os.environ["LEFT_BEHIND"] = "1"
