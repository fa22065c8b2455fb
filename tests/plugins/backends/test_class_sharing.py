"""Which options for class-data sharing the JVM of a local application gets, and which archives are kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainyard.backends.class_sharing import MAX_ARCHIVES, OPTIONS, ClassSharing, cache_folder


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A Java with the archive of its own classes, and a Spark."""
    for folder in ("java/bin", "java/lib/server", "spark/jars"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "java/bin/java").touch(mode=0o755)
    (tmp_path / "java/lib/server/classes.jsa").touch()
    return {"JAVA_HOME": str(tmp_path / "java"), "SPARK_HOME": str(tmp_path / "spark"), OPTIONS: "-Xint"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def run_first(env: dict[str, str], folder: Path, succeeded: bool = True) -> None:
    """Do as the first application: write the file that its options name."""
    sharing = ClassSharing(env, folder)
    option = sharing.prepare()[OPTIONS].split()[1]
    Path(option.removeprefix("-XX:ArchiveClassesAtExit=")).write_text("classes")
    sharing.finish(succeeded)


def test_the_first_application_writes_the_archive_that_the_next_one_maps(env: dict[str, str], folder: Path) -> None:
    run_first(env, folder)
    [archive] = folder.iterdir()
    assert ClassSharing(env, folder).prepare() == {OPTIONS: f"-Xint -XX:SharedArchiveFile={archive} -Xlog:cds*=off"}


def test_what_a_failed_application_has_written_is_removed(env: dict[str, str], folder: Path) -> None:
    run_first(env, folder, succeeded=False)
    assert list(folder.iterdir()) == []


def test_an_archive_that_cannot_be_kept_is_no_error_of_the_application(env: dict[str, str], folder: Path) -> None:
    sharing = ClassSharing(env, folder)
    written = Path(sharing.prepare()[OPTIONS].split()[1].removeprefix("-XX:ArchiveClassesAtExit="))
    written.write_text("classes")
    (folder / written.name[1:].rpartition(".")[0]).mkdir()  # no file can take its place
    sharing.finish(succeeded=True)


def test_an_application_that_wrote_nothing_leaves_nothing(env: dict[str, str], folder: Path) -> None:
    sharing = ClassSharing(env, folder)
    sharing.prepare()
    sharing.finish(succeeded=True)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("changed", ["spark/jars", "java/lib/server/classes.jsa"])
def test_another_spark_or_java_at_the_same_path_has_an_archive_of_its_own(
    env: dict[str, str], folder: Path, tmp_path: Path, changed: str
) -> None:
    run_first(env, folder)
    os.utime(tmp_path / changed, (1, 1))
    run_first(env, folder)
    assert len(list(folder.iterdir())) == 2


def test_the_archives_that_were_used_last_are_kept(env: dict[str, str], folder: Path, tmp_path: Path) -> None:
    for time in range(MAX_ARCHIVES + 2):
        os.utime(tmp_path / "spark/jars", (time, time))
        run_first(env, folder)
        for age, archive in enumerate(sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime)):
            os.utime(archive, (age + 10, age + 10))
    assert len(list(folder.iterdir())) == MAX_ARCHIVES
    assert "SharedArchiveFile" in ClassSharing(env, folder).prepare()[OPTIONS]


def test_an_archive_that_was_never_finished_is_removed_after_a_day(env: dict[str, str], folder: Path) -> None:
    folder.mkdir()
    abandoned, recent = (folder / f".spark-0123.jsa.{name}" for name in ("abandoned", "recent"))
    for file in (abandoned, recent):
        file.touch()
    os.utime(abandoned, (1, 1))
    run_first(env, folder)
    assert not abandoned.exists() and recent.exists()


@pytest.mark.parametrize("options", ["-Xshare:off", "-XX:SharedArchiveFile=/mine.jsa", "-XX:+AutoCreateSharedArchive"])
def test_options_of_the_user_for_sharing_are_left_alone(env: dict[str, str], folder: Path, options: str) -> None:
    assert ClassSharing(env | {OPTIONS: options}, folder).prepare() == {}


def test_a_java_without_an_archive_of_its_own_classes_shares_none(
    env: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "java/lib/server/classes.jsa").unlink()
    assert ClassSharing(env, folder).prepare() == {}


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert ClassSharing(env, tmp_path / "file" / "cache").prepare() == {}


def test_the_cache_is_where_the_users_other_caches_are() -> None:
    assert cache_folder({"HOME": "/home/me"}) == Path("/home/me/.cache/trainyard")
    assert cache_folder({"HOME": "/home/me", "XDG_CACHE_HOME": "/c"}) == Path("/c/trainyard")
