"""The spec of the script job."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, model_validator

from trainyard.schemas.results import ScriptResult
from trainyard.schemas.specs.fields import Arguments, Module, Workers
from trainyard.schemas.specs.job import GroupSpec


class ScriptSpec(GroupSpec):
    """Run a module as a program on each worker."""

    KIND: ClassVar[str] = "script spec"
    ENTRY: ClassVar[str] = "trainyard.trainer.group.script:run"
    RESULT = ScriptResult

    script: Module
    """The script's module: `digits.horovod_script` is digits/horovod_script.py, searched for beside the DAG."""
    arguments: Arguments = ()
    """Its command line, a list of strings. The result of another task becomes its `uri`."""
    workers: Workers = 1
    """The number of workers. Each needs a slot (a core, or a GPU), all at once. A pair (min, max) uses as many as there
    is room for, also after a restart: for a script that resumes with any number."""
    max_restarts: NonNegativeInt = 0
    """How often the group restarts after it lost a worker or hangs, without a new checkpoint in between. 0 by default,
    because the script starts at its first line and may not resume."""
    hang_minutes: PositiveFloat = 60.0
    """A script that has called `report_metrics` or `store_checkpoints`, and calls neither on any worker for this long,
    is ended, and the group restarts or fails. One that never calls them may take any time."""
    checkpoints_of: Literal["rank 0", "all ranks"] = "rank 0"
    """Whose files in the folder TRAINYARD_CHECKPOINTS are stored; they are restored on all ranks. `all ranks` is for a
    state that each rank writes a part of."""
    cwd: str | None = None
    """The working directory, relative to the folder of the shipped code, or absolute. By default the script's own
    folder, in a copy of the code that each worker has."""
    grace_seconds: NonNegativeFloat = 30.0
    """How long scripts may run after a SIGTERM: when another worker has failed, the task is killed, or a node is
    drained."""

    @model_validator(mode="after")
    def _check_trackers(self) -> ScriptSpec:
        if named := [each.registered_model_name for each in self.trackers if each.registered_model_name]:
            raise ValueError(
                f"trackers: registered_model_name={named[0]!r} is for the model of a TrainOperator; register that of a "
                "script in it, with mlflow.register_model"
            )
        return self
