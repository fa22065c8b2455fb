"""A script that writes by which store its process group would meet: `RESULTS/RANK.store`."""

import os
import sys
from pathlib import Path

from torch.distributed import rendezvous

store, rank, size = next(rendezvous("env://"))
Path(sys.argv[1], f"{os.environ['RANK']}.store").write_text(f"{type(store).__module__} {rank} of {size}")
