"""Folders that only this user can write to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainyard.errors import TrainyardError
from trainyard.trainer.folders import COMPILED, compile_privately


def test_torch_compiles_into_a_folder_of_this_user(tmp_path: Path) -> None:
    environ = {"LOCAL_DIRS": f"{tmp_path}/d1,{tmp_path}/d2"}
    compile_privately(environ)
    assert environ[COMPILED] == f"{tmp_path}/d1/trainyard-compiled"
    assert Path(environ[COMPILED]).stat().st_mode & 0o777 == 0o700
    compile_privately(environ)


def test_a_folder_that_another_user_has_created_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trainyard-compiled").mkdir()
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(TrainyardError, match=rf"has compiled, belongs to the user with id {user}, not"):
        compile_privately({"LOCAL_DIRS": str(tmp_path)})


def test_a_folder_that_the_environment_names_is_used() -> None:
    environ = {COMPILED: "/of/the/user", "LOCAL_DIRS": "/not/used"}
    compile_privately(environ)
    assert environ[COMPILED] == "/of/the/user"
