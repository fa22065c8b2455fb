"""The code archive: the programs and the user's package in one zip that depends on its content alone.

The same files give the same bytes and, by its content hash, the same name, on any machine.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import sys
import uuid
import zipfile
from collections.abc import Iterable, Mapping
from modulefinder import ModuleFinder
from pathlib import Path

from trainyard.contract.errors import TrainyardError

MAX_BYTES = 64 * 2**20
DRIVER = Path(__file__).parent / "backends" / "driver.py"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def build(import_paths: Iterable[str], dag_file: Path, folder: Path) -> Path:
    """The archive of the programs and of each package that `import_paths` lie in, below `folder`."""
    files = programs()
    for path in import_paths:
        files |= user_package(path, dag_file)
    data = archive(files)
    target = folder / f"trainyard-code-{hashlib.sha256(data).hexdigest()[:16]}.zip"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        staged = folder / f".{target.name}.{uuid.uuid4().hex}"
        staged.write_bytes(data)
        os.replace(staged, target)
    return target


def archive(files: Mapping[str, Path]) -> bytes:
    """A zip of `files` (name in the archive -> file), with nothing in it that time or place could change."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            bundle.writestr(entry, files[name].read_bytes())
    return buffer.getvalue()


def programs() -> dict[str, Path]:
    """Trainyard's own part: `etl`, `trainer` and the contract they share."""
    package = Path(__file__).parent
    files = {"trainyard/__init__.py": package / "__init__.py"}
    files |= _tree(package / "contract", "trainyard/contract")
    for name in ("etl", "trainer"):
        files |= _tree(_program_folder(package) / name, name)
    return files


def user_package(import_path: str, dag_file: Path) -> dict[str, Path]:
    """The top-level package (or module) of `import_path`, looked for upwards from the DAG's file.

    One that is installed in the environment instead is relied on, not shipped: then there are no
    files. Raises TrainyardError when there is none anywhere, or it is too large to ship.
    """
    module = import_path.partition(":")[0]
    top = module.partition(".")[0]
    for folder in dag_file.parents:
        if _holds(folder, module):
            files = _tree(folder / top, top) if (folder / top).is_dir() else {f"{top}.py": folder / f"{top}.py"}
            return _shippable(files, folder / top)
    own = _own(dag_file, top)
    if not own and _installed(top):
        return {}
    names = sorted(path.stem for path in own.glob("*.py") if path.stem != "__init__") if own else []
    near = f" {own} holds {', '.join(names) or 'no modules'}." if own else ""
    raise TrainyardError(
        f"{import_path!r}: there is no {module.replace('.', '/')}.py beside {dag_file} or in any folder above "
        f"it, and no installed package {top!r}.{near}"
    )


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


def _holds(folder: Path, module: str) -> bool:
    path = folder.joinpath(*module.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def _own(dag_file: Path, top: str) -> Path | None:
    """The user's package of this name. It can be imported like an installed one: Airflow's path has the DAGs folder."""
    return next((folder / top for folder in dag_file.parents if any((folder / top).glob("*.py"))), None)


def _installed(top: str) -> bool:
    return top in sys.modules or importlib.util.find_spec(top) is not None


def _shippable(files: dict[str, Path], package: Path) -> dict[str, Path]:
    size = sum(path.stat().st_size for path in files.values())
    if size > MAX_BYTES:
        raise TrainyardError(
            f"{package} holds {size / 2**20:.0f} MiB and is shipped with every job; the limit is "
            f"{MAX_BYTES // 2**20} MiB. Keep data in storage, not in the package."
        )
    return files


def _program_folder(package: Path) -> Path:
    shipped = package / "programs"
    return shipped if shipped.is_dir() else package.parent.parent


def _tree(root: Path, name: str) -> dict[str, Path]:
    found = {}
    for path in root.rglob("*"):
        inside = path.relative_to(root)
        hidden = any(part.startswith(".") or part == "__pycache__" for part in inside.parts)
        if path.is_file() and not hidden and path.suffix != ".pyc":
            found[f"{name}/{inside.as_posix()}"] = path
    return found
