"""Copy the code that loading a model needs, wherever it was imported from (a folder, or the zip of a job)."""

from __future__ import annotations

import importlib.util
from importlib import resources
from importlib.abc import InspectLoader
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import cast

MODULES = ("__init__.py", "atomic.py", "errors.py", "filesystems.py", "retries.py", "storage.py", "schemas", "trainer")
"""The parts of `trainyard` that loading a model imports."""


def copy(recipe: str, folder: Path) -> list[str]:
    """Copy these modules, and the package or module of `recipe`, to `folder`; return the paths of the copies."""
    for name in MODULES:
        _copy(resources.files("trainyard").joinpath(name), folder / "trainyard" / name)
    top = recipe.partition(":")[0].partition(".")[0]
    spec = importlib.util.find_spec(top)
    if spec and spec.submodule_search_locations is None:
        (folder / f"{top}.py").write_text(cast(InspectLoader, spec.loader).get_source(top) or "")
    else:
        _copy(resources.files(top), folder / top)
    return [str(path) for path in sorted(folder.iterdir())]


def _copy(source: Traversable, target: Path) -> None:
    if source.is_dir():
        for child in source.iterdir():
            if not child.name.startswith((".", "__pycache__")):
                _copy(child, target / child.name)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
