"""Does as its command line says: `FOLDER RANK HOW [met]`; the other ranks wait for each other for ever.

It leaves its process as scripts do: a group that is up, variables set. The rank that is named adds a line to
the file `starts` each time.
"""

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

folder, rank, how, *met = sys.argv[1:]
mine = os.environ["RANK"]
if mine == rank:
    with Path(folder, "starts").open("a") as starts:
        starts.write(os.environ["TORCHELASTIC_RESTART_COUNT"] + "\n")
if met or mine != rank:
    dist.init_process_group("gloo")
if mine == rank and not Path(folder, "done").exists():
    if how == "raise":
        raise RuntimeError("the data had enough\n\nand said so")
    if how == "kill once":
        Path(folder, "done").touch()
    if how.startswith("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(int(how) if how.isdigit() else how)
dist.all_reduce(torch.ones(1))
os.environ["LEFT_BEHIND"] = "1"
