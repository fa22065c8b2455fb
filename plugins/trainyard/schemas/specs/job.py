"""What all job specs have in common."""

from __future__ import annotations

from typing import ClassVar

from trainyard.schemas.document import Document
from trainyard.schemas.specs.task_key import TaskKey


class JobSpec(Document):
    """What every job is told. `ENTRY` is the function that runs it, as `module:name`."""

    ENTRY: ClassVar[str]
    task_key: TaskKey
