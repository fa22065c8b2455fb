"""Types of fields of documents: those that become a path, a part of one, or a part of a URL, and texts of errors.

Whoever may write one document of a storage must reach nothing else with it. An error is stored without the secrets
that it repeats.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

from trainyard.schemas.validation.secrets import mask

_NOT_IN_FILES = re.compile(r"[/\\:\x00-\x1f\x7f]")
_MAX_FILE_BYTES = 255


def _check_file_name(value: str) -> str:
    if value in ("", ".", "..") or _NOT_IN_FILES.search(value) or len(value.encode()) > _MAX_FILE_BYTES:
        raise ValueError("it is not the name of a file")
    return value


def _check_relative_path(value: str) -> str:
    for name in value.split("/"):
        _check_file_name(name)
    return value


Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{1,64}$")]
"""A checksum in hexadecimal digits, or the beginning of one."""


FileName = Annotated[str, AfterValidator(_check_file_name)]
"""The name of a file in a directory."""


RelativePath = Annotated[str, AfterValidator(_check_relative_path)]
"""A path that stays below the directory that it is relative to."""


ShardDirectory = Annotated[RelativePath, StringConstraints(pattern=r"^shards/[^/]+$")]
"""The directory of one write, relative to its dataset."""


SPLIT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
SplitName = Annotated[str, StringConstraints(pattern=f"^{SPLIT_NAME.pattern}$", max_length=100)]
"""The name of a split, which is part of the names of its files."""
VALID_SPLIT_NAME = "use letters, digits, '_', '-' and '.', such as 'train'"


ApplicationId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9 _-]{0,100}$")]
"""The id of a Spark application, or what there was in its place, such as "reused 2"; "" outside of one."""


TaskId = Annotated[str, StringConstraints(pattern=r"^[\w.-]*[\w-][\w.-]*$")]
"""The id of a task, as Airflow allows it, but none of dots alone."""


ErrorText = Annotated[str, AfterValidator(mask)]
"""The text of an exception, in which secrets are masked."""
