"""The commands of the documentation that ask for a cluster, on one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cluster.conftest import ROOT, Shell
from tests.docs.pages import PAGES, Block, blocks
from tests.docs.reader import is_in, write

pytestmark = [pytest.mark.cluster, pytest.mark.airflow, pytest.mark.timeout(900)]


def commands() -> list[tuple[Block, list[Block]]]:
    """Each such block, with the outputs that follow it."""
    found: list[tuple[Block, list[Block]]] = []
    for page in PAGES:
        last = None
        for block in blocks(page):
            if block.kind == "sh cluster":
                last = (block, [])
                found.append(last)
            elif block.kind == "output" and last:
                last[1].append(block)
            else:
                last = None
    return found


@pytest.mark.parametrize(("command", "outputs"), commands(), ids=str)
def test_a_command_does_what_its_page_says(shell: Shell, tmp_path: Path, command: Block, outputs: list[Block]) -> None:
    dags = tmp_path / "dags"
    shutil.copytree(ROOT / "dags", dags)
    for block in blocks(command.page):
        if block.file:
            write(tmp_path, block)
    done = shell(
        f"cd {tmp_path} && export AIRFLOW__CORE__DAGS_FOLDER={dags} PYTHONPATH={ROOT}/plugins:{ROOT}\n{command.text}"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [str(output) for output in outputs if not is_in(done.stdout, output)] == []
