"""Archives of Python and Spark, whose names are known: one that another user has planted is not run."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from trainyard.checks.write_access import check_write_access
from trainyard.errors import TrainyardError
from trainyard.files import permissions
from trainyard.planning.shipping import environment

ME = pwd.getpwuid(os.geteuid()).pw_name
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to another user")


@pytest.fixture
def root(tmp_path: Path) -> str:
    (tmp_path / "spark/jars").mkdir(parents=True)
    (tmp_path / "spark/jars/a.jar").write_bytes(b"jar")
    (tmp_path / "storage").mkdir()
    return f"file://{tmp_path}/storage"


def upload(root: str, tmp_path: Path) -> dict[str, str]:
    return environment.settings(root, {}, tmp_path / "spark")


def plant(path: Path) -> None:
    path.write_bytes(b"the attacker's")
    nobody = pwd.getpwnam("nobody")
    os.chown(path, nobody.pw_uid, nobody.pw_gid)


def give_to_other(path: Path) -> None:
    os.chown(path, pwd.getpwnam("nobody").pw_uid, -1)


@needs_root
def test_a_planted_archive_is_refused(root: str, tmp_path: Path) -> None:
    """Its name follows from the versions of Spark's jars, and applications ran it as the user who submits."""
    uri = upload(root, tmp_path)["spark.yarn.archive"]
    file = Path(uri.removeprefix("file://"))
    file.unlink()
    plant(file)
    conf = upload(root, tmp_path)
    assert conf["spark.yarn.archive"] == uri, "it is taken for the archive"
    with pytest.raises(TrainyardError, match=r"spark-.*\.zip belongs to user 'nobody', not to .*archive_owners"):
        environment.refuse_foreign(root, conf, {ME})
    environment.refuse_foreign(root, conf, {ME, "nobody"})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda file: file.chmod(0o666), "its mode is 666, not 644"),
        (lambda file: file.chmod(0o664), "its mode is 664, not 644"),
        (lambda file: file.parent.chmod(0o777), "its mode is 777, not 755"),
        pytest.param(lambda file: give_to_other(file.parent), "belongs to user 'nobody'", marks=needs_root),
    ],
)
def test_an_archive_that_others_could_replace_is_refused(
    root: str, tmp_path: Path, change: Callable[[Path], None], problem: str
) -> None:
    conf = upload(root, tmp_path)
    environment.refuse_foreign(root, conf, {ME})
    change(Path(conf["spark.yarn.archive"].removeprefix("file://")))
    with pytest.raises(TrainyardError, match=problem):
        environment.refuse_foreign(root, conf, {ME})


def test_a_packed_environment_elsewhere_is_checked_too(root: str, tmp_path: Path) -> None:
    (tmp_path / "packed").mkdir(mode=0o755)
    archive = tmp_path / "packed/python.tar.gz"
    archive.write_bytes(b"packed")
    archive.chmod(0o622)
    conf = environment.packed_settings(archive.as_uri(), {}, "")
    with pytest.raises(TrainyardError, match=r"python\.tar\.gz can be written to by other users"):
        environment.refuse_foreign(root, conf, {ME})


def test_what_a_dag_names_elsewhere_is_not_checked(root: str) -> None:
    environment.refuse_foreign(root, {"spark.archives": "hdfs:///theirs/words.zip#words"}, {ME})


def test_nobody_else_may_write_to_an_uploaded_archive_with_any_umask(root: str, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        conf = upload(root, tmp_path)
    finally:
        os.umask(before)
    environment.refuse_foreign(root, conf, {ME})


def test_others_may_add_to_a_folder_with_the_sticky_bit_and_replace_nothing(root: str, tmp_path: Path) -> None:
    conf = upload(root, tmp_path)
    (tmp_path / "storage/environments").chmod(0o1777)
    environment.refuse_foreign(root, conf, {ME})


def open_to_all(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda storage: (storage / "environments").chmod(0o775), r"environments can be .* 775, not 755"),
        (lambda storage: next(storage.glob("environments/*")).chmod(0o646), r"\.zip can be .* 646, not 644"),
        (lambda storage: storage.chmod(0o777), r"storage can be written to by other users: its mode is 777, not 755"),
        (lambda storage: open_to_all(storage / "runs"), r"/runs can be .* 777, not 755"),
        (lambda storage: open_to_all(storage / "owners"), r"/owners can be .* 777, not 755"),
    ],
)
def test_doctor_names_the_path_and_the_mode_that_others_can_write_with(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None], problem: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_TRAINYARD_DEFAULT", f"trainyard:///?storage={root.replace('/', '%2F')}")
    upload(root, tmp_path)
    assert check_write_access("trainyard_default") == (
        f"; packed environments are used if they belong to {ME}, and no one else can write to them"
    )
    change(tmp_path / "storage")
    with pytest.raises(TrainyardError, match=problem):
        check_write_access("trainyard_default")


def test_doctor_compares_a_packed_environment_with_the_digest_in_its_name(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "python.tar.gz"
    archive.write_bytes(b"packed")
    uri = environment.upload_archive(root, str(archive)).partition("#")[0]
    assert environment.is_intact(uri)
    Path(uri.removeprefix("file://")).write_bytes(b"another")
    assert not environment.is_intact(uri)
    assert environment.is_intact("hdfs:///theirs/python.tar.gz"), "its name has no digest"


def test_a_storage_without_owners_is_not_checked() -> None:
    with fsspec.filesystem("memory").open("/archives/x.zip", "wb") as file:
        file.write(b"x")
    assert permissions.read_access("memory://archives/x.zip") is None
