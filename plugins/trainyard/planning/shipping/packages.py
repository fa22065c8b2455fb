"""Find the package of user code that an import path names, what else it imports, and the files to ship for it."""

from __future__ import annotations

import difflib
import importlib.util
import sys
import zipfile
from pathlib import Path

from trainyard.errors import TrainyardError
from trainyard.planning.shipping.definitions import defined_names, imported_modules

MAX_BYTES = 64 * 2**20
RESERVED = "trainyard"
"""A user's package of this name would replace ours in the archive."""


def user_package(import_path: str, dag_file: Path) -> dict[str, Path]:
    """Return the files of the top-level package or module that an import path names.

    Args:
        import_path: `module:name`, or `module`.
        dag_file: The DAG's file. The package is searched for in its folder and in the folders above.

    Returns:
        Name in the archive -> file. Empty for a package that is installed in the environment: it is not shipped.

    Raises:
        TrainyardError: There is no such package, it is too large, its name is `trainyard`, it is in the archive of a
            zipped DAG, or the module does not define the name.
    """
    module, _, name = import_path.partition(":")
    top = module.partition(".")[0]
    if top == RESERVED and (package := _own_package(dag_file, top)):
        raise TrainyardError(
            f"{import_path!r}: {package} has the name of the installed package {RESERVED!r}, and would replace it on "
            "the cluster; give your package another name"
        )
    for folder in dag_file.parents:
        if folder.is_file() and _is_inside(folder, top):
            raise TrainyardError(
                f"{import_path!r}: it is inside {folder}, and code is shipped from folders only; unpack the archive "
                "in the DAGs folder"
            )
        if file := _module_file(folder, module):
            _refuse_undefined(import_path, file, name)
            files = package_files(folder / top, top) if (folder / top).is_dir() else {f"{top}.py": folder / f"{top}.py"}
            return _refuse_large(files, folder / top)
    own = _own_package(dag_file, top)
    if not own and _is_installed(top):
        return {}
    names = sorted(path.stem for path in own.glob("*.py") if path.stem != "__init__") if own else []
    near = f" {own} holds {', '.join(names) or 'no modules'}." if own else ""
    raise TrainyardError(
        f"{import_path!r}: there is no {module.replace('.', '/')}.py beside {dag_file} or in any folder above "
        f"it, and no installed package {top!r}.{near}"
    )


def shipped_files(import_path: str, dag_file: Path) -> dict[str, Path]:
    """Return the files of `user_package`, and of the user's other packages and modules that these import.

    The others are searched for in the same folders. What is installed in the environment is not shipped.

    Args:
        import_path: `module:name`, or `module`.
        dag_file: The DAG's file.

    Returns:
        Name in the archive -> file.

    Raises:
        TrainyardError: As of `user_package`, or another package is too large.
    """
    files = user_package(import_path, dag_file)
    unread = files
    while unread:
        sources = {name: path for name, path in unread.items() if path.suffix == ".py"}
        imported: set[str] = set().union(*(imported_modules(p.read_bytes(), package_of(n)) for n, p in sources.items()))
        known = {RESERVED, *sys.stdlib_module_names, *(name.partition("/")[0].removesuffix(".py") for name in files)}
        unread = {}
        for module in sorted(imported):
            if module.partition(".")[0] not in known:
                unread |= _other_package(module, dag_file)
        files = files | unread
    return files


def package_of(name: str) -> str:
    """Return the package of the module in a file, by its name in the archive."""
    return name.rpartition("/")[0].replace("/", ".")


def _other_package(module: str, dag_file: Path) -> dict[str, Path]:
    """Return the files of the package or module of the user's that has a module; empty if there is none."""
    top = module.partition(".")[0]
    folders = (folder for folder in dag_file.parents if folder.is_dir() and _module_file(folder, module))
    folder = next(folders, None)
    if folder is None or _is_another_installed(top, folder / top):
        return {}
    package = folder / top
    files = package_files(package, top) if package.is_dir() else {f"{top}.py": package.with_suffix(".py")}
    return _refuse_large(files, package)


def _is_another_installed(top: str, package: Path) -> bool:
    """Return whether Python imports another package or module of this name than `package`."""
    spec = importlib.util.find_spec(top)
    places = [spec.origin, *(spec.submodule_search_locations or ())] if spec else []
    found = [Path(place).resolve().with_suffix("") for place in places if place]
    return bool(found) and not any(place.is_relative_to(package.resolve()) for place in found)


def _module_file(folder: Path, module: str) -> Path | None:
    path = folder.joinpath(*module.split("."))
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


def _is_inside(archive: Path, top: str) -> bool:
    """Return whether the archive of a zipped DAG has a top-level package or module of this name."""
    with zipfile.ZipFile(archive) as opened:
        return any(name == f"{top}.py" or name.startswith(f"{top}/") for name in opened.namelist())


def _refuse_undefined(import_path: str, file: Path, name: str) -> None:
    defined = defined_names(file.read_bytes()) if name else None
    if defined is not None and name not in defined:
        public = sorted(other for other in defined if not other.startswith("_"))
        near = difflib.get_close_matches(name, public, n=1)
        hint = f"the nearest one is {near[0]!r}" if near else f"it defines {', '.join(public) or 'nothing'}"
        raise TrainyardError(f"{import_path!r}: {file} does not define {name!r}; {hint}.")


def _own_package(dag_file: Path, top: str) -> Path | None:
    """Return the user's package of this name, which Airflow can import too because the DAGs folder is on its path."""
    return next((folder / top for folder in dag_file.parents if any((folder / top).glob("*.py"))), None)


def _is_installed(top: str) -> bool:
    return top in sys.modules or importlib.util.find_spec(top) is not None


def _refuse_large(files: dict[str, Path], package: Path) -> dict[str, Path]:
    size = sum(path.stat().st_size for path in files.values())
    if size > MAX_BYTES:
        raise TrainyardError(
            f"{package} has {size / 2**20:.0f} MiB and is shipped with every job; the limit is "
            f"{MAX_BYTES // 2**20} MiB. Keep data in storage, not in the package."
        )
    return files


def package_files(root: Path, name: str) -> dict[str, Path]:
    """Return the files below `root` as NAME/PATH -> file, without hidden and compiled ones."""
    files = {}
    for path in root.rglob("*"):
        inside = path.relative_to(root)
        hidden = any(part.startswith(".") or part == "__pycache__" for part in inside.parts)
        if path.is_file() and not hidden and path.suffix != ".pyc":
            files[f"{name}/{inside.as_posix()}"] = path
    return files
