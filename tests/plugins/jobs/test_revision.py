"""The version of the user's code, of real repositories of git."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

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
    assert code == Code(archive="0123456789abcdef", commit=git(dag.parent, "rev-parse", "HEAD")[:16])
    assert settings.describe_code(code) == f"commit {code.commit[:10]}" if code.commit else False


def test_changes_beside_the_dag_are_said_and_those_of_other_folders_are_not(dag: Path) -> None:
    (dag.parents[1] / "other" / "dag.py").write_text("two")
    assert not describe_code(ARCHIVES, dag).is_changed
    (dag.parent / "recipe.py").write_text("new")
    code = describe_code(ARCHIVES, dag)
    assert code.is_changed
    assert settings.describe_code(code).endswith(", changed since (archive 0123456789abcdef)")


def test_outside_of_a_repository_the_archive_is_the_version(tmp_path: Path) -> None:
    code = describe_code(ARCHIVES, tmp_path / "dag.py")
    assert code == Code(archive="0123456789abcdef")
    assert settings.describe_code(code) == "archive 0123456789abcdef"
    assert settings.describe_code(None) == settings.describe_code(Code()) == ""


def test_the_version_of_a_dag_bundle_counts_before_a_repository(dag: Path) -> None:
    task_instance = SimpleNamespace(bundle_instance=SimpleNamespace(version="v1.2"))
    assert describe_code(ARCHIVES, dag, task_instance) == Code(archive="0123456789abcdef", commit="v1.2")


def test_without_git_there_is_no_commit(dag: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert describe_code(ARCHIVES, dag).commit is None
