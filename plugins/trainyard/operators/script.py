"""Script: a gang of ranks in one Spark barrier stage runs a program of the user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from trainyard.jobs import requirements
from trainyard.jobs.locations import uri_of
from trainyard.jobs.operator import COMMON_FIELDS, JobOperator
from trainyard.jobs.options import Templated, default
from trainyard.schemas.specs.script import ScriptSpec


class ScriptOperator(JobOperator):
    """Runs a script for Horovod or torchrun on each rank, unchanged. Returns `workers` and `restarts`.

    :param script: its module: `digits.horovod_script` is digits/horovod_script.py, looked for as recipes are
    :param arguments: its command line, a list of strings; of what another task returned it gets the `uri`
    :param workers: ranks; each needs a slot (a core, or a GPU), all at once
    :param max_restarts: times that the gang starts again after it lost a rank. None by default: the script begins at
        its first line, and only its author knows whether it goes on from what it kept
    """

    SPEC = ScriptSpec
    REQUIREMENTS = requirements.SCRIPT

    template_fields: ClassVar[Sequence[str]] = ("script", "arguments", "workers", "max_restarts", *COMMON_FIELDS)
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

    def resolve_fields(self, root: str) -> dict[str, Any]:
        """The spec's fields; what other tasks returned is told to the script as its URI."""
        fields = super().resolve_fields(root)
        given = fields["arguments"]
        if isinstance(given, list | tuple):
            fields["arguments"] = [uri_of(root, a) if isinstance(a, Mapping) and "uri" in a else a for a in given]
        return fields

    def spec_fields(self) -> dict[str, Any]:
        return {
            "script": self.script,
            "arguments": self.arguments,
            "workers": self.workers,
            "max_restarts": self.max_restarts,
        }
