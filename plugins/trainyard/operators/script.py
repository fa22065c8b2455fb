"""Script: run a user's training script on a group of workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from trainyard.jobs.options import requirements
from trainyard.jobs.options.base import Templated, default
from trainyard.jobs.options.locations import replace_results
from trainyard.operators.bases.worker_group import WorkerGroupOperator
from trainyard.schemas.specs.script import ScriptSpec


class ScriptOperator(WorkerGroupOperator):
    """Run a script for Horovod or torchrun, unchanged, on each worker of a Spark barrier stage.

    Returns (XCom): `workers`, `restarts`, and `metrics` if the script reports some.
    """

    SPEC = ScriptSpec
    REQUIREMENTS = requirements.SCRIPT

    template_fields_renderers: ClassVar[dict[str, str]] = {"arguments": "json"}

    def __init__(
        self,
        *,
        script: str,
        arguments: Any = default(ScriptSpec, "arguments"),
        workers: Templated[int] | tuple[Templated[int], Templated[int]] = default(ScriptSpec, "workers"),
        max_restarts: Templated[int] = default(ScriptSpec, "max_restarts"),
        hang_minutes: Templated[float] = default(ScriptSpec, "hang_minutes"),
        checkpoints_of: str = default(ScriptSpec, "checkpoints_of"),
        trackers: Sequence[str | Mapping[str, Any]] = default(ScriptSpec, "trackers"),
        cwd: str | None = None,
        grace_seconds: Templated[float] = default(ScriptSpec, "grace_seconds"),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)

    def locate_fields(self) -> dict[str, Any]:
        """Return the spec's fields, with the URIs of other tasks' results among the arguments."""
        fields = super().locate_fields()
        return fields | {"arguments": replace_results(fields["arguments"])}
