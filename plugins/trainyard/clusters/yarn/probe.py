"""Probe a node: a container there runs Java and imports what a stage needs, accesses the storage, or counts its GPUs.

The probe is an application with a single container, submitted without Spark. It takes a second or two. Its
application master never registers, so YARN always reports it as failed; the exit status in the diagnostics is the
result.
"""

from __future__ import annotations

import base64
import io
import json
import re
import shlex
import tarfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainyard.errors import TrainyardError
from trainyard.files import hadoop_conf, storage
from trainyard.planning.placement import DISCOVERY
from trainyard.planning.runtime import MIN_JAVA
from trainyard.planning.shipping import archive
from trainyard.planning.shipping.environment import NodeRuntime
from trainyard.yarn import java_programs
from trainyard.yarn.resource_manager import Archive, ResourceManager
from trainyard.yarn.settings import EXECUTOR, SHIPPED_HADOOP_CONF, container_environment

SECONDS = 60.0
UNPACK_SECONDS = 600.0
"""The limit where nodes first fetch and unpack an archive, which may have gigabytes."""

ACCESS_MB = 512
"""The memory of a container that accesses the storage, in MB."""
SUBMITTER = "gpu_submitter.py"
_COUNT = """
answer=$(
{discover}
)
found=$(echo "$answer" | sed 's/.*\\[//; s/\\].*//' | tr , '\\n' | grep -c .)
[ "$found" -ge {gpus} ] || {{ echo "on node $NM_HOST, nvidia-smi found $found of {gpus} GPUs" >&2; exit 1; }}
"""
_RUN = """
java="{java_home}/bin/java"
fail() {{ echo "$1" >&2; exit 1; }}
printed=$("$java" -version 2>&1) || fail "$NM_HOST has no Java at $java"
major=$(echo "$printed" | sed -n 's/.*version "\\(1\\.\\)\\{{0,1\\}}\\([0-9]*\\).*/\\2/p' | head -n 1)
[ "${{major:-0}}" -ge {min_java} ] || fail "$NM_HOST has Java $major at $java, and Spark needs {min_java} or newer"
exec {python} -c {program}
"""
_IMPORT = """
import sys
if sys.version_info < (3, 11):
    sys.exit("Python of the node is %d.%d, and jobs need 3.11 or newer" % sys.version_info[:2])
import {modules}
"""
_ACCESS = """
import base64, io, sys, tarfile
tarfile.open(fileobj=io.BytesIO(base64.b64decode({files!r}))).extractall()
sys.path.insert(0, {code!r})
from trainyard.files import trial
for uri in {uris!r}:
    if error := trial.write_error(uri):
        sys.exit(uri + ": " + error)
"""
_CODE = "trainyard-code"
_EXIT = re.compile(r"exited with\s+exitCode: (-?\d+)")
_STDERR = re.compile(r"Last \d+ bytes of stderr :\n(.*?)\n\n", re.DOTALL)


RUNTIME_FIX = (
    f"Install requirements.txt and Java {MIN_JAVA} there, or name others with spark.pyspark.python and JAVA_HOME; or "
    "ship both, to nodes that have neither: `trainyard environment pack`."
)


ACCESS_FIX = (
    "Have the directory opened for the user that the error names, or name another one with "
    "env_vars={'HADOOP_USER_NAME': ...}."
)


class NoRoomError(TrainyardError):
    """No container was granted in time, because the nodes are busy."""


def find_runtime_error(
    manager: ResourceManager, queue: str, label: str | None, memory: int, runtime: NodeRuntime, modules: Sequence[str]
) -> str:
    """Return why applications cannot run on a node of `label`, with Java and Python; empty when they can.

    Args:
        manager: The client of the ResourceManager.
        queue: The queue to submit to.
        label: The node label, None for nodes without one.
        memory: The memory of the container, in MB.
        runtime: The Java and the Python. Their archives are unpacked on the node first.
        modules: What Python must import.

    Raises:
        TrainyardError: YARN refuses the container, or an archive is not in storage.
        NoRoomError: No container was granted in time.
    """
    java_home = (runtime.java_home or "$JAVA_HOME").replace("{{PWD}}", "$PWD")
    program = _IMPORT.format(modules=", ".join(modules))
    script = _RUN.format(
        java_home=java_home, min_java=MIN_JAVA, python=shlex.quote(runtime.python), program=shlex.quote(program)
    )
    id = manager.submit(
        name="trainyard-probe", queue=queue, label=label, memory=memory, command=_as_command(script),
        archives=_find_archives(runtime),
    )  # fmt: skip
    return _reason(manager, id, UNPACK_SECONDS if runtime.on_hdfs else SECONDS)


def find_storage_error(
    manager: ResourceManager, queue: str, label: str | None, runtime: NodeRuntime, environment: Mapping[str, str],
    uris: Sequence[str],
) -> str:  # fmt: skip
    """Return why a container on a node of `label` cannot write and read files as jobs do; empty when it can.

    The container has Trainyard's code, the client configuration of Hadoop, and the environment of a job's.

    Args:
        manager: The client of the ResourceManager.
        queue: The queue to submit to.
        label: The node label, None for nodes without one.
        runtime: The Python. Its archives are unpacked on the node first.
        environment: The environment variables of the job's driver or executors.
        uris: The directories.

    Raises:
        TrainyardError: YARN refuses the container, or an archive is not in storage.
        NoRoomError: No container was granted in time.
    """
    program = build_access_program(uris)
    id = manager.submit(
        name="trainyard-probe", queue=queue, label=label, memory=ACCESS_MB, environment=environment,
        command=_as_command(f"exec {shlex.quote(runtime.python)} -c {shlex.quote(program)}"),
        archives=_find_archives(runtime),
    )  # fmt: skip
    return _reason(manager, id, UNPACK_SECONDS if runtime.on_hdfs else SECONDS)


def build_access_program(uris: Sequence[str]) -> str:
    """Return the Python program that writes and reads a file in each directory, with Trainyard's code in it."""
    return _ACCESS.format(files=_pack_files(), code=_CODE, uris=list(uris))


def _pack_files() -> str:
    """Return an archive of the code that accesses storage, and of Hadoop's configuration where Spark would ship it."""
    names = [*archive.SHIPPED_MODULES, *(f"files/{file.name}" for file in (archive.PACKAGE / "files").glob("*.py"))]
    files = {f"{_CODE}/trainyard/{name}": archive.PACKAGE / name for name in sorted(names)}
    if folder := hadoop_conf.find_folder():
        files |= {f"{SHIPPED_HADOOP_CONF}/{name}": Path(folder, name) for name in ("core-site.xml", "hdfs-site.xml")}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as tar:
        for name, file in files.items():
            if file.exists():
                tar.add(file, name)
    return base64.b64encode(packed.getvalue()).decode()


def describe_nodes(label: str | None) -> str:
    """Return which nodes a label selects."""
    return f"on nodes of partition {label!r}" if label else "on nodes without a label"


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
        "environment": container_environment(conf, EXECUTOR),
        "command": _as_command(script),
    }  # fmt: skip
    printed = java_programs.run(SUBMITTER, json.dumps(request), failure="a container with GPUs could not be requested")
    return _reason(manager, printed.split()[-1], SECONDS)


def _as_command(script: str) -> str:
    """Return a command that runs a script. YARN puts it inside double quotes, so it has no special characters."""
    return f"echo {base64.b64encode(script.encode()).decode()} | base64 -d | sh"


def _find_archives(runtime: NodeRuntime) -> dict[str, Archive]:
    return {folder: _find_archive(uri) for folder, uri in runtime.on_hdfs.items()}


def _find_archive(uri: str) -> Archive:
    directory, _, name = uri.rpartition("/")
    file = next((file for file in storage.find_files(directory) if file.path == name), None)
    if file is None:
        raise TrainyardError(f"there is no {uri}. Pack it again: `trainyard environment pack`.")
    return Archive(uri, file.bytes, round((file.modified or 0) * 1000))


def _reason(manager: ResourceManager, id: str, seconds: float) -> str:
    """Return the last line that the container of an application wrote to stderr, "" if it succeeded."""
    try:
        diagnostics = _diagnostics(manager, id, seconds)
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


def _diagnostics(manager: ResourceManager, id: str, seconds: float) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        application = manager.application(id)
        if application and not application.live:
            return application.diagnostics
        time.sleep(0.25)
    raise NoRoomError(f"no container was granted within {seconds:.0f} s.")
