"""The spec of the script job."""

from __future__ import annotations

from typing import ClassVar

from pydantic import NonNegativeInt, PositiveInt

from trainyard.schemas.results import ScriptResult
from trainyard.schemas.specs.fields import Arguments, Module
from trainyard.schemas.specs.job import JobSpec


class ScriptSpec(JobSpec):
    """Run a module as a program on each worker.

    Attributes:
        script: The module.
        arguments: Its command line.
        workers: The number of workers.
        max_restarts: How often a group that lost a worker restarts the script from its first line.
    """

    KIND: ClassVar[str] = "script spec"
    ENTRY: ClassVar[str] = "trainyard.trainer.group.script:run"
    RESULT = ScriptResult
    HAS_HEARTBEATS = True

    script: Module
    arguments: Arguments = ()
    workers: PositiveInt = 1
    max_restarts: NonNegativeInt = 0
