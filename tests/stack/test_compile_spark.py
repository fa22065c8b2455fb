"""The archive of pyspark has compiled modules, so that workers of Spark need not compile it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from stack.local.compile_spark import add_compiled_modules

PROGRAM = "import sample.module as m; print(m.VALUE, m.__file__)"


def test_an_import_from_an_archive_takes_the_compiled_module(tmp_path: Path) -> None:
    archive = tmp_path / "sample.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("sample/__init__.py", "")
        file.writestr("sample/module.py", "VALUE = 1")
        file.writestr("sample/tests/test_module.py", "")
        file.writestr("sample/data.txt", "text")
    original = tmp_path / "cache.zip"
    os.link(archive, original)

    add_compiled_modules(archive)
    added = archive.read_bytes()
    add_compiled_modules(archive)

    assert archive.read_bytes() == added
    assert sorted(set(zipfile.ZipFile(archive).namelist()) - set(zipfile.ZipFile(original).namelist())) == [
        "sample/__init__.pyc",
        "sample/module.pyc",
    ]
    command = [sys.executable, "-c", PROGRAM]
    output = subprocess.run(command, env={"PYTHONPATH": str(archive)}, capture_output=True, text=True, check=True)
    assert output.stdout.split() == ["1", str(archive / "sample" / "module.pyc")]
