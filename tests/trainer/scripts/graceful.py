"""A script that saves its state at SIGTERM: `FOLDER`. Rank 1 fails when rank 0 has started."""

import os
import signal
import sys
import time
from pathlib import Path

folder, rank = Path(sys.argv[1]), os.environ["RANK"]


def save(*_: object) -> None:
    time.sleep(1)
    (folder / "saved").touch()
    sys.exit()


signal.signal(signal.SIGTERM, save)
(folder / f"started {rank}").touch()
while not (folder / "started 0").exists():
    time.sleep(0.05)
if rank == "1":
    print("the disk is full")
    os._exit(4)
while True:
    time.sleep(0.05)
