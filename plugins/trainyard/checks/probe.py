"""Probe a node: a container there imports what a stage needs, or counts its GPUs.

The probe is an application with a single container, submitted without Spark. It takes a second or two. Its
application master never registers, so YARN always reports it as failed; the exit status in the diagnostics is the
result.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
import time
from collections.abc import Mapping, Sequence

from trainyard.errors import TrainyardError
from trainyard.planning.placement import DISCOVERY
from trainyard.yarn import java_programs
from trainyard.yarn.resource_manager import ResourceManager

SECONDS = 60.0
SUBMITTER = "gpu_submitter.py"
_EXECUTOR_ENV = "spark.executorEnv."
_COUNT = """
answer=$(
{discover}
)
found=$(echo "$answer" | sed 's/.*\\[//; s/\\].*//' | tr , '\\n' | grep -c .)
[ "$found" -ge {gpus} ] || {{ echo "on node $NM_HOST, nvidia-smi found $found of {gpus} GPUs" >&2; exit 1; }}
"""
_EXIT = re.compile(r"exited with\s+exitCode: (-?\d+)")
_STDERR = re.compile(r"Last \d+ bytes of stderr :\n(.*?)\n\n", re.DOTALL)


class NoRoomError(TrainyardError):
    """No container was granted in time, because the nodes are busy."""


def find_import_error(
    manager: ResourceManager, queue: str, label: str | None, memory: int, python: str, modules: Sequence[str]
) -> str:
    """Return why `python` cannot import `modules` on a node of `label`; empty when it can.

    Args:
        manager: The client of the ResourceManager.
        queue: The queue to submit to.
        label: The node label, None for nodes without one.
        memory: The memory of the container, in MB.
        python: The path of the interpreter.
        modules: The names of the modules.

    Raises:
        TrainyardError: YARN refuses the container.
        NoRoomError: No container was granted within a minute.
    """
    program = "import " + ", ".join(modules)
    id = manager.submit(
        name="trainyard-probe", queue=queue, label=label, memory=memory,
        command=f"exec {shlex.quote(python)} -c {shlex.quote(program)}",
    )  # fmt: skip
    return _reason(manager, id)


def find_gpu_error(
    manager: ResourceManager, queue: str, label: str | None, memory: int, gpus: int, conf: Mapping[str, str]
) -> str:
    """Return why a container with `gpus` GPUs on a node of `label` does not find them; empty when it does.

    The container runs the discovery script of Spark's executors, with the environment that they get.

    Args:
        manager: The client of the ResourceManager.
        queue: The queue to submit to.
        label: The node label, None for nodes without one.
        memory: The memory of the container, in MB.
        gpus: The GPUs of the container.
        conf: The Spark configuration.

    Raises:
        TrainyardError: YARN refuses the container.
        NoRoomError: No container was granted within a minute.
    """
    script = _COUNT.format(discover=DISCOVERY.read_text(), gpus=gpus)
    request = {
        "name": "trainyard-probe", "queue": queue, "label": label, "memory": memory, "gpus": gpus,
        "environment": {
            name.removeprefix(_EXECUTOR_ENV): value for name, value in conf.items() if name.startswith(_EXECUTOR_ENV)
        },
        # YARN runs a command inside double quotes, so the script must not have special characters.
        "command": f"echo {base64.b64encode(script.encode()).decode()} | base64 -d | sh",
    }  # fmt: skip
    printed = java_programs.run(SUBMITTER, json.dumps(request), failure="a container with GPUs could not be requested")
    return _reason(manager, printed.split()[-1])


def _reason(manager: ResourceManager, id: str) -> str:
    """Return the last line that the container of an application wrote to stderr, "" if it succeeded."""
    try:
        diagnostics = _diagnostics(manager, id)
    finally:
        manager.kill(id)
    status = _EXIT.search(diagnostics)
    if not status:
        raise TrainyardError(diagnostics.strip())
    if status[1] == "0":
        return ""
    stderr = _STDERR.search(diagnostics)
    lines = stderr[1].strip().splitlines() if stderr else []
    return lines[-1] if lines else f"the container ended with exit status {status[1]}"


def _diagnostics(manager: ResourceManager, id: str) -> str:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        application = manager.application(id)
        if application and not application.live:
            return application.diagnostics
        time.sleep(0.25)
    raise NoRoomError(f"no container was granted within {SECONDS:.0f} s.")
