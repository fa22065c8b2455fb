"""The documentation: pages build without warnings, links have targets, and code does what the page says."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, blocks, name_of
from tests.docs.reader import KINDS, Reader

every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


@pytest.mark.full
@pytest.mark.airflow
def test_pages_build_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "docs", str(tmp_path)]
    build = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert build.returncode == 0, build.stderr
    reference = (tmp_path / "reference" / "operators.html").read_text()
    assert "grow_memory_to" in reference and "epoch_models" in reference, "options come from docstrings"
    fields = (tmp_path / "reference" / "schema-fields.html").read_text()
    assert "rows_per_batch" in fields, "fields come from the schemas"


@every_page
def test_links_lead_to_existing_files(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@every_page
def test_every_block_has_a_known_kind(page: Path) -> None:
    assert [f"{block}: {block.kind}" for block in blocks(page) if block.kind.split("}")[0] not in KINDS] == []


@every_page
def test_code_that_can_run_is_not_marked_as_text(page: Path) -> None:
    assert [str(block) for block in blocks(page) if block.kind == "text" and _is_code(block.text)] == []


@pytest.mark.full
@pytest.mark.airflow
@pytest.mark.ranks
@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=name_of)
def test_the_code_of_a_page_works(page: Path, read: Callable[[Path], Reader]) -> None:
    reader = read(page)
    assert reader.problems() == [] and reader.bad_models() == []


def _is_code(text: str) -> bool:
    """Return whether a text is a command of ours, or Python with a call."""
    if any(line.startswith(("python ", "airflow ", "make ", "trainyard ")) for line in text.splitlines()):
        return True
    try:
        return any(isinstance(node, ast.Call) for node in ast.walk(ast.parse(text)))
    except SyntaxError:
        return False
