"""What an operator requests, and what this installation provides, before both become a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainyard.planning.placement import Placement
from trainyard.planning.sizing import Memory
from trainyard.schemas.specs.task_key import TaskKey


@dataclass(frozen=True)
class Job:
    """What an operator asks for. `workers` ranks run at once, `min_workers` must; None when it is no gang.

    `storage` is the URI below which things are stored; `modules` is what the job's Python imports on the
    nodes, beside Spark's and the user's own.
    """

    operator: str
    task_key: TaskKey
    storage: str
    spec: Mapping[str, Any]
    modules: tuple[str, ...] = ()
    workers: int | None = None
    min_workers: int | None = None
    conf: Mapping[str, str] | None = None
    memory: Memory = field(default_factory=Memory)
    driver_memory: Memory = field(default_factory=Memory)
    grow_memory_to: str | None = None
    placement: Placement = field(default_factory=Placement)


@dataclass(frozen=True)
class Runtime:
    """What this installation brings: the driver program, the code archive, the environment."""

    program: str
    py_files: tuple[str, ...]
    env: Mapping[str, str]
