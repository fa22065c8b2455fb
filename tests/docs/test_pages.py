"""The documentation: pages that can be made, links that lead somewhere, code that does what it says."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, blocks
from tests.docs.reader import KINDS, Reader

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@pytest.mark.airflow
def test_pages_are_made_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "docs", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    reference = (tmp_path / "operators.html").read_text()
    assert "grow_memory_to" in reference and "epoch_models" in reference, "options come from docstrings"
    assert "min_workers" in (tmp_path / "documents.html").read_text(), "so do the fields of documents"


@every_page
def test_links_lead_to_files_that_are_there(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@every_page
def test_each_block_is_of_a_kind_that_says_how_it_is_checked(page: Path) -> None:
    assert [f"{block}: {block.kind}" for block in blocks(page) if block.kind.split("}")[0] not in KINDS] == []


@every_page
def test_what_could_be_run_is_not_called_text(page: Path) -> None:
    assert [str(block) for block in blocks(page) if block.kind == "text" and _is_code(block.text)] == []


@pytest.mark.airflow
@pytest.mark.ranks
@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_what_a_page_says_works(page: Path, read: Callable[[Path], Reader]) -> None:
    assert read(page).problems() == []


def _is_code(text: str) -> bool:
    """Whether it is a command of ours, or Python that calls something."""
    if any(line.startswith(("python ", "airflow ", "make ")) for line in text.splitlines()):
        return True
    try:
        return any(isinstance(node, ast.Call) for node in ast.walk(ast.parse(text)))
    except SyntaxError:
        return False
