"""A script that reports, and then hangs: `FOLDER HOW`; "wait" sleeps, "stop" stops the process of rank 1."""

import os
import signal
import sys
import time
from pathlib import Path

from trainyard.trainer import report_metrics

folder, how = Path(sys.argv[1]), sys.argv[2]
rank, start = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
(folder / f"{rank} {start}").touch()
if rank == "1":
    report_metrics(step=3, loss=0.5)
    if start == "0" and how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    while start == "0":
        time.sleep(0.1)
