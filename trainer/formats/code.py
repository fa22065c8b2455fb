"""The code that loading a bundle takes, as files, wherever it was imported from (a folder, or the zip of a job)."""

from __future__ import annotations

import importlib.util
from importlib import resources
from importlib.abc import InspectLoader
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import cast

MODULES = ("__init__.py", "errors.py", "storage.py", "table.py", "schemas", "trainer")
"""What of `trainyard` loading a model takes."""


def copy(recipe: str, folder: Path) -> list[str]:
    """Copy the trainer, the contract, and the package or module of `recipe` to `folder`; the path of each there."""
    for name in MODULES:
        _copy(resources.files("trainyard").joinpath(name), folder / "trainyard" / name)
    top = recipe.partition(":")[0].partition(".")[0]
    found = importlib.util.find_spec(top)
    if found and found.submodule_search_locations is None:
        (folder / f"{top}.py").write_text(cast(InspectLoader, found.loader).get_source(top) or "")
    else:
        _copy(resources.files(top), folder / top)
    return [str(path) for path in sorted(folder.iterdir())]


def _copy(source: Traversable, target: Path) -> None:
    if source.is_dir():
        for inside in source.iterdir():
            if not inside.name.startswith((".", "__pycache__")):
                _copy(inside, target / inside.name)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
