"""The spec of the script job."""

from __future__ import annotations

from typing import ClassVar

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from trainyard.schemas.results import ScriptResult
from trainyard.schemas.specs.fields import Arguments, Module
from trainyard.schemas.specs.job import JobSpec


class ScriptSpec(JobSpec):
    """Run a module as a program on each worker."""

    KIND: ClassVar[str] = "script spec"
    ENTRY: ClassVar[str] = "trainyard.trainer.group.script:run"
    RESULT = ScriptResult
    HAS_HEARTBEATS = True

    script: Module
    """The script's module: `digits.horovod_script` is digits/horovod_script.py, searched for beside the DAG."""
    arguments: Arguments = ()
    """Its command line, a list of strings. The result of another task becomes its `uri`."""
    workers: PositiveInt = 1
    """The number of workers. Each needs a slot (a core, or a GPU), all at once."""
    max_restarts: NonNegativeInt = 0
    """How often the group restarts after it lost a worker. 0 by default, because the script starts at its first line
    and may not resume."""
    cwd: str | None = None
    """The working directory, relative to the folder of the shipped code, or absolute. By default the script's own
    folder, in a copy of the code that each worker has."""
    grace_seconds: NonNegativeFloat = 30.0
    """How long scripts may run after a SIGTERM: when another worker has failed, the task is killed, or a node is
    drained."""
