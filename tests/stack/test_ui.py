"""`make ui`: an Airflow of this machine only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = '#!/bin/sh\necho "$(basename "$0") $* at $AIRFLOW__API__HOST $AIRFLOW__CORE__HOSTNAME_CALLABLE" >>"$CALLS"\n'


def test_no_server_of_the_ui_listens_on_an_address_that_other_machines_reach(tmp_path: Path) -> None:
    """Airflow's own log servers did, while the script said that it is this machine only."""
    script = shutil.copytree(ROOT / "stack/local", tmp_path / "stack/local") / "ui.sh"
    shutil.copy(ROOT / "requirements.txt", tmp_path)
    programs = tmp_path / ".venv/bin"
    programs.mkdir(parents=True)
    (programs / "python").symlink_to(sys.executable)
    for name in ("airflow", "uvicorn"):
        (programs / name).write_text(PROGRAM)
        (programs / name).chmod(0o755)
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "CALLS": str(tmp_path / "calls"), "JAVA_HOME": "/",
        "AIRFLOW__API__PORT": "18471",
    }  # fmt: skip
    subprocess.run([script], env=environment, check=False, capture_output=True, timeout=60)
    calls = [line.split(" at ") for line in (tmp_path / "calls").read_text().splitlines()]
    servers = [command for command, _ in calls if "db migrate" not in command]
    assert "airflow standalone" not in servers
    assert {"airflow scheduler --skip-serve-logs", "airflow triggerer --skip-serve-logs"} <= {*servers}
    assert [command for command in servers if "log_server" in command and "--host 127.0.0.1 --port 19184" in command]
    assert {settings for _, settings in calls[1:]} == {"127.0.0.1 this_machine.get_name"}
    assert 'return "localhost"' in (tmp_path / ".run/airflow/config/this_machine.py").read_text()
