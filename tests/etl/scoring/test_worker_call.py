"""What needs torch is found out in a Python worker, and not in the driver."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from typing import Any

import pytest

from trainyard.errors import TrainyardError
from trainyard.etl.scoring.worker_call import call_in_worker

DRIVERS = ", ".join(f"trainyard.etl.jobs.{job}" for job in ("evaluate", "exporting.export", "featurize", "predict"))


def refuse(layer: str) -> None:
    raise TrainyardError(f"no layer {layer!r}.\nThe layers are a, b.")


@pytest.mark.spark
def test_the_result_is_that_of_another_process(spark: Any) -> None:
    assert call_in_worker(spark, lambda: {"process": os.getpid()})["process"] != os.getpid()


@pytest.mark.spark
def test_an_error_for_the_user_is_raised_as_it_is(spark: Any) -> None:
    with pytest.raises(TrainyardError) as raised:
        call_in_worker(spark, partial(refuse, "z"))
    assert str(raised.value) == "no layer 'z'.\nThe layers are a, b."


@pytest.mark.slow
def test_drivers_that_only_need_metadata_do_not_import_torch() -> None:
    """It takes seconds, and hundreds of megabytes."""
    program = f"import sys, {DRIVERS}; print(sorted({{'torch', 'torchmetrics'}} & sys.modules.keys()))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "[]"
