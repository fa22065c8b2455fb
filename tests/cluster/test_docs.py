"""The commands in the documentation that need a cluster work on one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cluster.conftest import ROOT, Shell
from tests.docs.pages import PAGES, Block, blocks
from tests.docs.reader import is_in, write

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.airflow, pytest.mark.timeout(900)]


def list_commands() -> list[tuple[Block, list[Block]]]:
    """Return each such block with the outputs that follow it."""
    commands: list[tuple[Block, list[Block]]] = []
    for page in PAGES:
        last = None
        for block in blocks(page):
            if block.kind == "sh cluster":
                last = (block, [])
                commands.append(last)
            elif block.kind == "output" and last:
                last[1].append(block)
            else:
                last = None
    return commands


@pytest.mark.parametrize(("command", "outputs"), list_commands(), ids=str)
def test_a_command_succeeds_with_the_output_on_its_page(
    shell: Shell, tmp_path: Path, command: Block, outputs: list[Block]
) -> None:
    dags = tmp_path / "dags"
    shutil.copytree(ROOT / "dags", dags)
    for block in blocks(command.page):
        if block.file:
            write(tmp_path, block)
    process = shell(
        f"cd {tmp_path} && export AIRFLOW__CORE__DAGS_FOLDER={dags} PYTHONPATH={ROOT}/plugins:{ROOT}\n{command.text}"
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert [str(output) for output in outputs if not is_in(process.stdout, output)] == []
