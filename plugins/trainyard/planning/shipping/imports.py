"""Find which files of the user's packages a module imports, without executing them."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

from trainyard.planning.shipping.definitions import imported_modules
from trainyard.planning.shipping.packages import package_of, shipped_files


def imported_files(import_path: str, dag_file: Path) -> dict[str, Path]:
    """Return the files of `shipped_files` that the module of an import path depends on.

    These are the module, the modules that it imports directly or indirectly, and all files that are not Python. Imports
    by a computed name are not found.
    """
    files = shipped_files(import_path, dag_file)
    names = {_module_of(name): name for name, path in files.items() if path.suffix == ".py"}
    found: set[str] = set()
    unread = _with_parents(import_path.partition(":")[0])
    while unread:
        module = unread.pop()
        if module in names and module not in found:
            found.add(module)
            name = names[module]
            for imported in imported_modules(files[name].read_bytes(), package_of(name)):
                unread |= _with_parents(imported)
    used = {names[module] for module in found}
    return {name: path for name, path in files.items() if name in used or path.suffix != ".py"}


def _with_parents(module: str) -> set[str]:
    """Return a module and the packages that Python imports before it."""
    return set(accumulate(module.split("."), "{}.{}".format))


def _module_of(name: str) -> str:
    """Return the name of the module in a file, by its name in the archive."""
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
