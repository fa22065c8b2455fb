"""The phases of an application: what its driver and its workers do one after the other, each with a span of its events.

This is the only list of them. A new phase is a line of it; the hang detector, the sums of a training, the report and
the usage of resources ask for its attributes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, Self

Activity = Literal[
    "start", "data", "write", "data-wait", "forward", "backward", "optimizer", "communication", "worker-wait", "score",
    "other",
]  # fmt: skip
"""What a phase belongs to: it has a color and a title in the report (`report/palette.py`)."""
IDLE: frozenset[Activity] = frozenset({"start", "data-wait", "communication", "worker-wait"})
"""Activities in which nothing is computed. Communication overlaps other phases."""


class Phase(StrEnum):
    """A phase, in the order in which the workers of a group pass through them.

    A worker that waits for others is in a later phase than those it waits for, or in the same. At the end of an epoch,
    rank 0 writes its model while the others wait to save a checkpoint.

    Attributes:
        activity: What it belongs to.
        in_step: Whether it is part of a training step.
        position: Its place in the order.
    """

    START_SPARK = "start Spark", "start"
    WAIT_FOR_SLOTS = "wait for slots", "start"
    START = "start", "start"
    IMPORT = "import", "start"
    IMPORT_PREPARE = "import prepare", "start"
    RENDEZVOUS = "rendezvous", "start"
    FIND_CHECKPOINT = "find checkpoint", "start"
    SET_UP = "set up", "start"
    DATA_WAIT = "data wait", "data-wait", True
    COPY = "copy", "data", True
    FORWARD = "forward", "forward", True
    BACKWARD = "backward", "backward", True
    COMMUNICATION_WAIT = "wait for communication", "worker-wait", True
    OPTIMIZER = "optimizer", "optimizer", True
    COMMUNICATION = "communication", "communication", True
    VALIDATE = "validate", "score"
    WRITE_MODEL = "write model", "write"
    CHECKPOINT = "checkpoint", "write"
    WORKER_WAIT = "wait for workers", "worker-wait"
    READ_SOURCE = "read source", "data"
    PREPARE = "prepare", "data"
    FIND_DUPLICATES = "find duplicates", "data"
    CHECK_VALUES = "check values", "data"
    FIT = "fit", "data"
    WRITE_DATASET = "write dataset", "write"
    EVALUATE = "evaluate", "score"
    PREDICT = "predict", "score"
    WORKER_GROUP = "worker group", "other"
    SCRIPT = "script", "other"
    STEPS = "steps", "other"
    """Phases of steps that have no span of their own."""

    activity: Activity
    in_step: bool
    position: int

    def __new__(cls, name: str, activity: Activity, in_step: bool = False) -> Self:
        """Create a phase."""
        phase = str.__new__(cls, name)
        phase._value_ = name
        phase.activity, phase.in_step, phase.position = activity, in_step, len(cls.__members__)
        return phase


BY_NAME = {phase.value: phase for phase in Phase}


def find_activity(span: str) -> Activity:
    """Return the activity of a span. One that another version, or the user's code, has named belongs to "other"."""
    return BY_NAME[span].activity if span in BY_NAME else "other"


def computes(span: str) -> bool:
    """Return whether something is computed in a span."""
    return find_activity(span) not in IDLE


def is_in_step(span: str) -> bool:
    """Return whether a span is part of a training step."""
    return span in BY_NAME and BY_NAME[span].in_step
