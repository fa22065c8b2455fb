"""Find which files of a package a module imports, without executing them."""

from __future__ import annotations

from modulefinder import ModuleFinder
from pathlib import Path

from trainyard.planning.packages import user_package


def imported_files(import_path: str, dag_file: Path) -> dict[str, Path]:
    """Return the files of `user_package` that the module of an import path depends on.

    These are the module, the modules of the package that it imports directly or indirectly, and all files that are not
    Python. Imports are found in the byte code; imports by a computed name are not found.

    Raises:
        SyntaxError: A module is not valid Python.
    """
    files = user_package(import_path, dag_file)
    if not files:
        return {}
    name, path = next(iter(files.items()))
    finder = ModuleFinder(path=[str(path.parents[name.count("/")])])
    finder.import_hook(import_path.partition(":")[0])
    loaded = {Path(file) for module in finder.modules.values() if (file := getattr(module, "__file__", None))}
    return {name: path for name, path in files.items() if path in loaded or path.suffix != ".py"}
