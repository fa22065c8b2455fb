"""What each kind of job needs on the nodes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from trainyard.jobs.options import requirements
from trainyard.jobs.options.requirements import Requirements
from trainyard.schemas.specs import EvaluateSpec, ExportSpec, FeaturizeSpec, JobSpec, PredictSpec, ScriptSpec, TrainSpec

RECORD = """
import builtins, importlib, json, sys

imported, original = set(), builtins.__import__

def record(name, globals=None, *rest, **options):
    if globals and globals.get("__name__", "").startswith("trainyard"):
        imported.add(name.partition(".")[0])
    return original(name, globals, *rest, **options)

builtins.__import__ = record
for module in sys.argv[1:]:
    importlib.import_module(module)
print(json.dumps(sorted(imported - set(sys.stdlib_module_names))))
"""
WORKERS = {TrainSpec: "trainyard.trainer.group.worker"}
"""What the workers of a group import, where their driver does not."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "needs"),
    [
        (ExportSpec, requirements.SPARK),
        (FeaturizeSpec, requirements.FEATURIZE),
        (TrainSpec, requirements.TRAIN),
        (ScriptSpec, requirements.SCRIPT),
        (EvaluateSpec, requirements.EVALUATE),
        (PredictSpec, requirements.PREDICT),
    ],
)
def test_the_modules_that_a_job_imports_are_among_those_it_needs(
    python: Callable[..., subprocess.CompletedProcess[str]], spec: type[JobSpec], needs: Requirements
) -> None:
    entry = spec.ENTRY.partition(":")[0]
    modules = [entry, WORKERS[spec]] if spec in WORKERS else [entry]
    done = python("-c", RECORD, *modules)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) <= {"pyspark", "pydantic_core", "trainyard", *needs.modules}
