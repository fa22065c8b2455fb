"""The spec of the script job."""

from __future__ import annotations

from typing import ClassVar

from pydantic import NonNegativeInt, PositiveInt

from trainyard.schemas.specs.fields import Arguments, Module
from trainyard.schemas.specs.job import JobSpec


class ScriptSpec(JobSpec):
    """Run the module `script` as a program on `workers` ranks, with `arguments` as its command line.

    A gang that lost a rank starts again from the script's first line, `max_restarts` times at most.
    """

    KIND: ClassVar[str] = "script spec"
    ENTRY: ClassVar[str] = "trainyard.trainer.group.script:run"

    script: Module
    arguments: Arguments = ()
    workers: PositiveInt = 1
    max_restarts: NonNegativeInt = 0
