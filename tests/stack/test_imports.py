"""What modules import exists, also in the programs that they have as texts, and in modules that no test collects."""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("bench", "dags", "docs", "etl", "plugins", "stack", "tests", "trainer")
FILES = [
    str(file.relative_to(ROOT))
    for folder in FOLDERS
    for file in sorted((ROOT / folder).rglob("*"))
    if file.suffix in (".py", ".md", ".sh") and "build" not in file.parts[len(ROOT.parts) :]
]
IMPORT = re.compile(
    r"\bfrom ((?:bench|stack|tests|trainyard)(?:\.\w+)*) import ((?:\w+(?: as \w+)?(?:, )?)+|\([^)]*\))", re.MULTILINE
)


@cache
def is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@cache
def has_name(module: str, name: str) -> bool:
    """Return whether a module exists and has a name, as far as its text says."""
    spec = find_spec(module) if is_module(module) else None
    text = Path(spec.origin).read_text() if spec and spec.origin else ""
    return spec is not None and (is_module(f"{module}.{name}") or re.search(rf"\b{name}\b", text) is not None)


@pytest.mark.parametrize("file", FILES)
def test_every_name_that_is_imported_exists(file: str) -> None:
    imports = IMPORT.findall((ROOT / file).read_text())
    named = [(module, name) for module, names in imports for name in re.findall(r"(?<!as )\b(?!as\b)\w+", names)]
    assert [f"{module}.{name}" for module, name in named if not has_name(module, name)] == []
