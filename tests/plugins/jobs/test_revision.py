"""The version of the user's code, of real repositories of git."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainyard.jobs import revision
from trainyard.jobs.revision import describe_code
from trainyard.report import settings
from trainyard.schemas.specs.job import Code

ARCHIVES = ["/home/trainyard-code-0123456789abcdef.zip"]


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def dag(tmp_path: Path) -> Path:
    """The file of a DAG in a repository that has another folder."""
    for folder in ("dags", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "dag.py").write_text("one")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "First")
    return tmp_path / "dags" / "dag.py"


def test_the_commit_is_that_of_the_repository_of_the_dag(dag: Path) -> None:
    code = describe_code(ARCHIVES, dag)
    commit = git(dag.parent, "rev-parse", "HEAD").strip()
    assert code == Code(archive="0123456789abcdef", commit=commit, is_changed=False)
    assert settings.describe_code(code) == f"commit {commit[:10]}"


@pytest.mark.parametrize("name", ["dags/dag.py", "dags/recipe.py", "other/dag.py", "above.py"])
def test_changes_in_the_repository_are_said_also_where_shipped_packages_may_be(dag: Path, name: str) -> None:
    (dag.parents[1] / name).write_text("two")
    code = describe_code(ARCHIVES, dag)
    assert code.is_changed
    text = settings.describe_code(code)
    assert text.endswith(", with changes that are not committed (archive 0123456789abcdef)")


def test_outside_of_a_repository_the_archive_is_the_version(tmp_path: Path) -> None:
    code = describe_code(ARCHIVES, tmp_path / "dag.py")
    assert code == Code(archive="0123456789abcdef")
    assert settings.describe_code(code) == "archive 0123456789abcdef"
    assert settings.describe_code(None) == settings.describe_code(Code()) == ""


def test_a_repository_that_does_not_have_the_dag_is_not_its_version(dag: Path) -> None:
    (dag.parents[1] / ".gitignore").write_text("build/\n")
    ignored = dag.parents[1] / "build"
    ignored.mkdir()
    (ignored / "dag.py").write_text("one")
    assert describe_code(ARCHIVES, ignored / "dag.py").commit is None


def test_a_repository_in_the_environment_is_not_that_of_the_dag(
    dag: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, other = describe_code(ARCHIVES, dag), tmp_path_factory.mktemp("other")
    git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert describe_code(ARCHIVES, dag) == expected


def test_whether_something_has_changed_may_be_unknown(
    dag: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (dag.parent / "recipe.py").write_text("new")
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text(f'#!/bin/sh\ncase "$*" in *status*) sleep 20;; esac\nexec {shutil.which("git")} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(revision, "SECONDS", 1)
    code = describe_code(ARCHIVES, dag)
    assert code.commit and code.is_changed is None
    assert settings.describe_code(code).endswith(", perhaps with changes (archive 0123456789abcdef)")


def test_names_of_files_may_have_any_bytes(dag: Path) -> None:
    git(dag.parent, "config", "core.quotepath", "false")
    Path(os.fsdecode(os.fsencode(dag.parent) + b"/\xff.py")).write_text("")
    assert describe_code(ARCHIVES, dag).is_changed


def test_the_version_of_a_dag_bundle_counts_before_a_repository(dag: Path) -> None:
    task_instance = SimpleNamespace(bundle_instance=SimpleNamespace(version="release-2026-11-29-build-7"))
    code = describe_code(ARCHIVES, dag, task_instance)
    assert code == Code(archive="0123456789abcdef", bundle_version="release-2026-11-29-build-7")
    assert settings.describe_code(code) == "version release-2026-11-29-build-7 of the DAG bundle"


def test_without_git_there_is_no_commit(dag: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert describe_code(ARCHIVES, dag).commit is None
