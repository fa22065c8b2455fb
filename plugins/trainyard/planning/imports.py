"""Find which files of a package a module imports, without executing them."""

from __future__ import annotations

from modulefinder import ModuleFinder
from pathlib import Path

from trainyard.planning.packages import user_package


def reached(import_path: str, dag_file: Path) -> dict[str, Path]:
    """Of the files that `user_package` ships, those that the module of `import_path` depends on.

    These are the module, what it imports of the package, however far, and all files that are no Python. Nothing is
    executed: imports are found in the compiled text, so those made by name at run time are not. Raises SyntaxError.
    """
    files = user_package(import_path, dag_file)
    if not files:
        return {}
    name, path = next(iter(files.items()))
    finder = ModuleFinder(path=[str(path.parents[name.count("/")])])
    finder.import_hook(import_path.partition(":")[0])
    loaded = {Path(file) for module in finder.modules.values() if (file := getattr(module, "__file__", None))}
    return {name: path for name, path in files.items() if path in loaded or path.suffix != ".py"}
