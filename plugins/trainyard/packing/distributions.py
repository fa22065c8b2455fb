"""Find the installed distributions that nodes need, with all that they require."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from trainyard.errors import TrainyardError

NEEDED = (
    "fsspec", "hdfs-native", "numpy", "pandas", "psutil", "pyarrow", "pydantic", "requests", "safetensors", "tenacity",
    "torch", "torchmetrics",
)  # fmt: skip
"""What jobs import on the nodes. Spark ships pyspark itself."""

OPTIONAL = ("adlfs", "gcsfs", "horovod", "mlflow-skinny", "nvidia-ml-py", "pillow", "s3fs", "tensorboard")
"""What jobs import on the nodes where it is installed."""


def find_distributions(added: Iterable[str] = (), excluded: Iterable[str] = ()) -> list[metadata.Distribution]:
    """Return the installed distributions that nodes need, by name.

    Args:
        added: Names of distributions to pack too.
        excluded: Names of distributions not to pack, unless another one requires them.

    Raises:
        TrainyardError: A distribution is not installed, or its files are not known.
    """
    left_out = {canonicalize_name(name) for name in excluded}
    optional = [name for name in OPTIONAL if _is_installed(name)]
    roots = [name for name in (*NEEDED, *optional) if canonicalize_name(name) not in left_out]
    found: dict[str, metadata.Distribution] = {}
    for name in (*roots, *added):
        _add(Requirement(name), "", found)
    return [found[name] for name in sorted(found)]


def list_files(distribution: metadata.Distribution) -> Iterator[tuple[str, Path]]:
    """Yield each file of a distribution below its site-packages: its path there, and where it is.

    Programs and compiled Python files are left out: the former name this machine's Python, and the latter are made
    again in the archive.
    """
    for file in distribution.files or []:
        if ".." not in file.parts and "__pycache__" not in file.parts:
            yield str(file), Path(str(distribution.locate_file(file)))


def _add(requirement: Requirement, parent: str, found: dict[str, metadata.Distribution]) -> None:
    """Add a distribution, and what it requires, to those that were found."""
    name = canonicalize_name(requirement.name)
    if name in found and not requirement.extras:
        return
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        if parent:
            raise TrainyardError(f"{name} is not installed here, and {parent} requires it. Install it.") from None
        raise TrainyardError(
            f"{name} is not installed here, and jobs import it on the nodes. Install it, or write --without {name}."
        ) from None
    if (distribution.read_text("direct_url.json") or "").replace(" ", "").find('"editable":true') >= 0:
        raise TrainyardError(f"{name} is installed in editable mode, without its files. Install it as a wheel.")
    if distribution.files is None:  # as by the packages of Debian
        raise TrainyardError(
            f"{name} cannot be packed: it is installed without a list of its files. Install it with "
            f"`pip install --ignore-installed {name}`."
        )
    is_new = name not in found
    found[name] = distribution
    for text in distribution.requires or []:
        required = Requirement(text)
        extras = [*requirement.extras, *([""] if is_new else [])]
        if any(required.marker is None or required.marker.evaluate({"extra": extra}) for extra in extras):
            _add(required, distribution.name, found)


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True
