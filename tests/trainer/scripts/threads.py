"""A script that writes how many threads it may use: `RESULTS/RANK.json`."""

import json
import os
import sys
from pathlib import Path

import torch

threads = {"omp": os.environ["OMP_NUM_THREADS"], "torch": torch.get_num_threads()}
Path(sys.argv[1], f"{os.environ['RANK']}.json").write_text(json.dumps(threads))
