"""A job's Python workers are forked from a daemon that has imported torch, and that the job starts early."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.spark

PROGRAM = """
import json, os, sys

from pyspark.sql import SparkSession
from trainyard.backends.driver import DEFAULTS
from trainyard.etl.jobs import preload

spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").config(map=DEFAULTS)
    .config("spark.python.daemon.module", preload.DAEMON).getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
started = preload.preload(spark)
started.join()


def look(batches):
    import pyarrow as pa

    for batch in batches:
        # A worker imports nothing for this function: what is there was there when it was forked.
        yield pa.record_batch({"torch": ["torch" in sys.modules], "daemon": [os.getppid()]})


early = {row.daemon for row in spark.range(1).mapInArrow(look, "torch boolean, daemon long").collect()}
rows = spark.range(0, 2, 1, 2).mapInArrow(look, "torch boolean, daemon long").collect()
of_rdd = spark.sparkContext.parallelize([0]).map(lambda _: os.getppid()).collect()
daemons = {*early, *of_rdd, *(row.daemon for row in rows)}
print(json.dumps({"torch": [row.torch for row in rows], "daemons": len(daemons)}))
"""


@pytest.mark.full
def test_workers_of_frames_and_of_rdds_have_torch_when_they_are_forked_from_one_daemon() -> None:
    path = os.pathsep.join(str(ROOT / part) for part in ("plugins", ""))
    env = os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == {"torch": [True, True], "daemons": 1}
