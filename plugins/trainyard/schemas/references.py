"""What documents refer to: versions of datasets and models, which stay as long as the documents do.

Each document declares its references in a method `references`, so that retention does not look for names of fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from trainyard.schemas.version_suffix import split_version


class Reference(NamedTuple):
    """A version of a dataset, by its number, or of a model, by the sha256 of its weights or the beginning of it.

    A version that is None or "" is not known, and refers to nothing.
    """

    uri: str
    version: int | str | None


def refer_to_model(name: str) -> Reference:
    """Return the reference to the version that a name or URI of a model ends with, `MODEL@VERSION`, if it has one."""
    return Reference(*split_version(name))


def find_results(params: Any) -> Iterator[Reference]:
    """Yield the references of results of other tasks in the arguments of user code, where they are as in XCom."""
    if isinstance(params, Mapping):
        for uri, version in (
            ("uri", "version"), ("uri", "weights_sha256"), ("model", "weights_sha256"), ("dataset", "dataset_version"),
        ):  # fmt: skip
            if isinstance(params.get(uri), str) and isinstance(params.get(version), int | str):
                yield Reference(params[uri], params[version])
    if isinstance(params, Mapping | list | tuple):
        for value in params.values() if isinstance(params, Mapping) else params:
            yield from find_results(value)
