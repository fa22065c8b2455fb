"""Script: run a user's training script on a group of workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from trainyard.jobs import requirements
from trainyard.jobs.locations import replace_results
from trainyard.jobs.options import Templated, default
from trainyard.operators.worker_group import GROUP_FIELDS, WorkerGroupOperator
from trainyard.schemas.specs.script import ScriptSpec


class ScriptOperator(WorkerGroupOperator):
    """Run a script for Horovod or torchrun, unchanged, on each worker of a Spark barrier stage.

    Returns (XCom): `workers` and `restarts`.

    Args:
        script: The script's module: `digits.horovod_script` is digits/horovod_script.py, searched for beside the DAG.
        arguments: Its command line, a list of strings. The result of another task becomes its `uri`.
        workers: The number of workers. Each needs a slot (a core, or a GPU), all at once.
        max_restarts: How often the group restarts after it lost a worker. 0 by default, because the script starts at
            its first line and may not resume.
    """

    SPEC = ScriptSpec
    REQUIREMENTS = requirements.SCRIPT

    template_fields: ClassVar[Sequence[str]] = ("script", "arguments", "workers", "max_restarts", *GROUP_FIELDS)
    template_fields_renderers: ClassVar[dict[str, str]] = {"arguments": "json", "conf": "json"}

    def __init__(
        self,
        *,
        script: str,
        arguments: Any = default(ScriptSpec, "arguments"),
        workers: Templated[int] = default(ScriptSpec, "workers"),
        max_restarts: Templated[int] = default(ScriptSpec, "max_restarts"),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.script = script
        self.arguments = arguments
        self.workers = workers
        self.max_restarts = max_restarts
        self.validate_options()

    def locate_fields(self) -> dict[str, Any]:
        """Return the spec's fields, with the URIs of other tasks' results among the arguments."""
        fields = super().locate_fields()
        return fields | {"arguments": replace_results(fields["arguments"])}

    def spec_fields(self) -> dict[str, Any]:
        """Return the options as fields of the spec."""
        return {
            "script": self.script,
            "arguments": self.arguments,
            "workers": self.workers,
            "max_restarts": self.max_restarts,
        }
