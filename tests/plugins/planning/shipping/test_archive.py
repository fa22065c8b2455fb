"""The code archive holds the programs and the user's package, and depends on their content alone."""

import os
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from zipimport import zipimporter

import pytest

from trainyard.errors import TrainyardError, UnavailableError
from trainyard.planning.shipping import packages
from trainyard.planning.shipping.archive import DRIVER, archive_folder, build_archive, zip_files
from trainyard.planning.shipping.packages import user_package


def test_the_same_files_give_the_same_archive_whenever_and_wherever(pipelines: Path, tmp_path: Path) -> None:
    first = build_archive(["toy.prepare:rows"], pipelines / "toy" / "dag.py", tmp_path / "a")
    os.utime(pipelines / "toy" / "prepare.py", (0, 0))
    second = build_archive(["toy.prepare:rows"], pipelines / "toy" / "dag.py", tmp_path / "b")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_the_order_of_the_files_does_not_change_the_archive(tmp_path: Path) -> None:
    """A directory lists its files in another order on another machine."""
    files = {}
    for name in ("a.py", "b/c.py", "d.py"):
        files[name] = tmp_path / name.replace("/", "-")
        files[name].write_text(name)
    assert zip_files(dict(reversed(files.items()))) == zip_files(files)


def test_a_package_without_an_init_file_is_imported_from_the_archive(tmp_path: Path) -> None:
    files = {}
    for name in ("flowers/recipe.py", "flowers/layers/conv.py", "flowers/data/a.csv"):
        files[name] = tmp_path / name
        files[name].parent.mkdir(parents=True, exist_ok=True)
        files[name].touch()
    archive = tmp_path / "code.zip"
    archive.write_bytes(zip_files(files))
    assert set(zipfile.ZipFile(archive).namelist()) == {*files, "flowers/__init__.py", "flowers/layers/__init__.py"}
    assert zipimporter(str(archive)).find_spec("flowers")


def test_other_content_gives_another_name(pipelines: Path, tmp_path: Path) -> None:
    first = build_archive(["toy.prepare:rows"], pipelines / "toy" / "dag.py", tmp_path)
    (pipelines / "toy" / "prepare.py").write_text("def rows(spark, source): return source.limit(1)\n")
    assert build_archive(["toy.prepare:rows"], pipelines / "toy" / "dag.py", tmp_path).name != first.name


def test_the_archive_has_what_a_job_imports_and_nothing_else(pipelines: Path, tmp_path: Path) -> None:
    (pipelines / "toy" / "__pycache__").mkdir()
    (pipelines / "toy" / "__pycache__" / "prepare.cpython-311.pyc").write_bytes(b"")
    (pipelines / "toy" / ".secret").write_text("")
    names = zipfile.ZipFile(build_archive(["toy.prepare:rows"], pipelines / "toy" / "dag.py", tmp_path)).namelist()
    assert {
        "trainyard/__init__.py",
        "trainyard/schemas/specs/train.py",
        "trainyard/etl/jobs/exporting/export.py",
        "trainyard/trainer/group/worker.py",
    } <= set(names)
    assert {name for name in names if name.startswith("toy/")} == {"toy/__init__.py", "toy/prepare.py", "toy/recipe.py"}
    assert not [name for name in names if name.startswith("trainyard/operators")]


@pytest.mark.slow
def test_the_archive_alone_has_all_that_the_driver_and_the_workers_import(pipelines: Path, tmp_path: Path) -> None:
    archive = build_archive([], pipelines / "toy" / "dag.py", tmp_path)
    names = zipfile.ZipFile(archive).namelist()
    modules = [name.removesuffix(".py").replace("/", ".") for name in names if name.startswith("trainyard/")]
    modules = [name.removesuffix(".__init__") for name in modules if "datamodule" not in name and "daemon" not in name]
    program = (
        "import importlib, pathlib, sys\n"
        "for name in sys.stdin.read().split(): importlib.import_module(name)\n"
        f"exec(compile(pathlib.Path({str(DRIVER)!r}).read_text(), 'driver.py', 'exec'), {{'__name__': 'driver'}})\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(archive)!r})\n{program}"],
        input=" ".join(modules), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_archives_are_in_a_folder_that_only_its_user_can_use(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        folder = archive_folder(tmp_path)
    finally:
        os.umask(umask)
    assert folder == archive_folder(tmp_path) == tmp_path / f"trainyard-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700


def open_to_others(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def link(folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(folder.parent / "elsewhere")


@pytest.mark.parametrize("prepare", [open_to_others, link, Path.touch])
def test_a_folder_in_which_another_user_may_have_files_is_refused(
    tmp_path: Path, prepare: Callable[[Path], None]
) -> None:
    """On this machine: another attempt may run on another one."""
    folder = tmp_path / f"trainyard-{os.getuid()}"
    prepare(folder)
    where = f"^{folder} on {socket.gethostname()} is not a directory that only user"
    with pytest.raises(UnavailableError, match=f"{where} .* Remove it there, or set TMPDIR"):
        archive_folder(tmp_path)


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    another = os.getuid() + 1
    (tmp_path / f"trainyard-{another}").mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: another)
    with pytest.raises(UnavailableError, match=f"is not a directory that only user {another} can use"):
        archive_folder(tmp_path)


def test_a_single_module_beside_the_dag_is_found(tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text("rows = None")
    assert user_package("alone:rows", tmp_path / "dag.py") == {"alone.py": tmp_path / "alone.py"}


def test_an_installed_package_is_not_archived(tmp_path: Path) -> None:
    assert user_package("pydantic.main:BaseModel", tmp_path / "dag.py") == {}


def test_a_module_that_is_missing_in_the_users_package_is_refused_where_airflow_imports_that_too(
    pipelines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(pipelines)
    with pytest.raises(TrainyardError, match=r"there is no toy/script\.py beside .*toy holds prepare, recipe\."):
        user_package("toy.script", pipelines / "toy" / "dag.py")


def test_a_script_is_archived_with_the_modules_beside_it(pipelines: Path) -> None:
    (pipelines / "toy" / "script.py").write_text("")
    assert {"toy/script.py", "toy/recipe.py"} <= user_package("toy.script", pipelines / "toy" / "dag.py").keys()


def test_a_package_with_data_files_is_refused(pipelines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "MAX_BYTES", 10)
    (pipelines / "toy" / "table.csv").write_text("x" * 11)
    with pytest.raises(TrainyardError, match="Keep data in storage, not in the package"):
        user_package("toy.prepare:rows", pipelines / "toy" / "dag.py")


@pytest.mark.parametrize("name", ["etl", "trainer"])
def test_a_users_package_with_the_name_of_a_folder_of_ours_replaces_nothing(tmp_path: Path, name: str) -> None:
    own = tmp_path / name / "export.py"
    own.parent.mkdir()
    own.write_text("OWN = rows = True\n")
    packed = zipfile.ZipFile(build_archive([f"{name}.export:rows"], tmp_path / "dag.py", tmp_path / "code"))
    assert packed.read(f"{name}/export.py") == own.read_bytes()
    assert b"OWN" not in packed.read("trainyard/etl/jobs/exporting/export.py")


def test_a_users_package_named_trainyard_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "trainyard").mkdir()
    (tmp_path / "trainyard" / "prepare.py").write_text("")
    with pytest.raises(TrainyardError, match=r"trainyard has the name of .*; give your package another name"):
        build_archive(["trainyard.prepare:rows"], tmp_path / "dag.py", tmp_path / "code")
