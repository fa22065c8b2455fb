"""The paths of a run in storage, and the tags of its applications. Pure functions.

The second word of a tag is its kind (task, storage or submission), so that no name of a task makes one of another kind.
"""

from __future__ import annotations

import hashlib
import re

from trainyard.files import uris
from trainyard.schemas.specs.task_key import TaskKey

COMMON_TAG = "trainyard"
"""The YARN tag of all applications."""
_MAX_LENGTH = 240
"""Names of directories have 255 bytes at most."""


def application_tag(task_key: TaskKey) -> str:
    """Return the YARN tag of a task's applications: the same for all attempts of a task, unique to the task.

    YARN allows ASCII in tags, and makes them lower case.
    """
    identity = "\0".join([task_key.directory, task_key.dag_id, task_key.run_id, task_key.task])
    name = re.sub(r"[^a-z0-9._-]", "_", task_key.task[:40].lower())
    return f"trainyard-task-{name}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def submission_tag(id: str) -> str:
    """Return the YARN tag of the application of one submission; `id` is unique to it."""
    return f"trainyard-submission-{id}"


def is_submission_tag(tag: str) -> bool:
    """Return whether a tag of YARN is one that `submission_tag` makes."""
    return tag.startswith("trainyard-submission-")


def is_reserved_tag(tag: str) -> bool:
    """Return whether a tag, which YARN makes lower case, can be one of Trainyard's."""
    return tag.lower() == COMMON_TAG or tag.lower().startswith(f"{COMMON_TAG}-")


def storage_tag(root: str) -> str:
    """Return the YARN tag of the applications of all tasks whose storage root is `root`."""
    return f"trainyard-storage-{hashlib.sha256(root.rstrip('/').encode()).hexdigest()[:16]}"


def run_directory(root: str, dag_id: str, run_id: str) -> str:
    """Return the directory of a DAG run below the storage root. Distinct run ids have distinct directories."""
    return uris.join(root, "runs", path_safe(dag_id), path_safe(run_id))


def attempt_uri(task_key: TaskKey) -> str:
    """Return the URI of the spec that the application of an attempt reads."""
    return uris.join(task_key.directory, "attempts", task_key.task, f"{task_key.try_number}.json")


def path_safe(name: str) -> str:
    """Return `name` as one component of a path. Distinct names stay distinct."""
    safe = re.sub(r"[^A-Za-z0-9._-]|^\.", "_", name)[:_MAX_LENGTH]
    return safe if safe == name else f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
