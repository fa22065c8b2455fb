"""A worker that stores versions of several files without an end, until it is killed: `ROOT FOLDER`.

Each version has one number in all of its files; the name of one of them has it too.
"""

import os
import sys
from pathlib import Path

from trainyard.schemas.runs.events import EventLog
from trainyard.trainer import store_checkpoints
from trainyard.trainer.measuring.phases import CurrentPhase
from trainyard.trainer.scripts.session import FOLDER, Session, restore

root, folder = sys.argv[1], Path(sys.argv[2])
restored = restore(root, folder)
events = EventLog(str(folder), "train", "worker 0")
with Session(root, folder, restored, 0, 1, None, events, CurrentPhase()) as session:
    os.environ |= session.variables
    files = folder / FOLDER
    number = int((files / "0").read_text()[:10]) if (files / "0").exists() else 0
    print("started", number, flush=True)
    while True:
        number += 1
        for path in files.glob("*"):
            path.unlink()
        for name in (*map(str, range(5)), f"of {number}"):
            (files / name).write_text(f"{number:10}" * 1000)
        (files / "constant").write_text("constant")
        store_checkpoints()
        print("stored", number, flush=True)
