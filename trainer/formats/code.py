"""Copy the code that loading a model needs, wherever it was imported from (a folder, or the zip of a job)."""

from __future__ import annotations

import ast
import importlib.util
import zipfile
from collections.abc import Collection, Iterator
from contextlib import suppress
from importlib import resources
from importlib.abc import InspectLoader
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import cast

INSTALLED = ("site-packages", "dist-packages")
"""The folders of installed packages, whose imports are installed too where the model is served."""
MODULES = ("__init__.py", "deadlines.py", "errors.py", "files", "schemas", "trainer")
"""The parts of `trainyard` that loading a model imports."""


def copy(recipes: Collection[str], folder: Path) -> list[str]:
    """Copy these modules, and the package or module of each recipe, to `folder`; return the paths of the copies.

    The other packages and modules of the same directory or archive that it imports are copied too, as a job ships them.
    """
    for name in MODULES:
        _copy(resources.files("trainyard").joinpath(name), folder / "trainyard" / name)
    copied, waiting = {"trainyard"}, {recipe.partition(":")[0].partition(".")[0] for recipe in recipes}
    locations = {location for top in waiting if (location := _find_location(top)) and location.name not in INSTALLED}
    while waiting:
        copied |= waiting
        imports = {name for package in waiting for name in _list_imports(_copy_package(package, folder))}
        waiting = {name for name in imports - copied if locations and _find_location(name) in locations}
    return [str(path) for path in sorted(folder.iterdir())]


def _find_location(top: str) -> Path | None:
    """Return the directory or archive that has a top-level package or module of Python code; None if there is none."""
    with suppress(ImportError, ValueError):  # find_spec's for a module that was not imported from a file
        if spec := importlib.util.find_spec(top):
            places = [*(spec.submodule_search_locations or ())]
            if not places and spec.origin and spec.origin.endswith(".py"):
                places = [spec.origin]
            return Path(places[0]).absolute().parent if places else None
    return None


def _copy_package(top: str, folder: Path) -> Path:
    """Copy a top-level package or module, which is not imported, to `folder`, and return the copy."""
    spec = importlib.util.find_spec(top)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {top!r}", name=top)
    if spec.submodule_search_locations is None:
        copied = folder / f"{top}.py"
        copied.write_text(cast(InspectLoader, spec.loader).get_source(top) or "")
    else:
        copied = folder / top
        for place in reversed([*spec.submodule_search_locations]):  # Python searches the first one first
            _copy(_open_directory(Path(place)), copied)
    return copied


def _open_directory(path: Path) -> Traversable:
    """Return a directory of a file system or an archive; importlib.resources needs an __init__.py in an archive."""
    archive = next((parent for parent in path.parents if parent.is_file()), None)
    return zipfile.Path(archive, f"{path.relative_to(archive).as_posix()}/") if archive else path


def _list_imports(package: Path) -> Iterator[str]:
    """Yield the top-level packages and modules that a package or module imports by their full names."""
    for file in package.rglob("*.py") if package.is_dir() else (package,):
        with suppress(SyntaxError, ValueError):  # a template, for example
            for node in ast.walk(ast.parse(file.read_bytes())):
                if isinstance(node, ast.Import):
                    yield from (alias.name.partition(".")[0] for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    yield node.module.partition(".")[0]


def _copy(source: Traversable, target: Path) -> None:
    if source.is_dir():
        for child in source.iterdir():
            if not child.name.startswith((".", "__pycache__")):
                _copy(child, target / child.name)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
