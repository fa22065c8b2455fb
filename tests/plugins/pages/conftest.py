"""An Airflow API server in this process, with users, DAGs and runs of the tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.plugins.results import output
from trainyard.planning.paths import run_directory
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Airflow:
    """A client of the pages, for runs below `root`."""

    app: Any
    root: str

    def get(
        self, path: str = "", /, user: str | None = "ann", accept: str = "*/*", raises: bool = True, **query: Any
    ) -> Any:
        """Get a page as `user`, or without login when it is None; errors of the server are raised, or answered."""
        from airflow.api_fastapi.app import get_auth_manager
        from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
        from starlette.testclient import TestClient

        headers = {"Accept": accept}
        if user:
            token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=user, role="VIEWER"))
            headers["Authorization"] = f"Bearer {token}"
        return TestClient(self.app, raise_server_exceptions=raises).get(
            f"/trainyard/{path}?{urlencode(query)}", headers=headers
        )

    def dag(self, dag_id: str) -> None:
        """Add a DAG to Airflow's database."""
        from airflow.models import DagModel
        from airflow.utils.session import create_session

        with create_session() as session:
            session.merge(DagModel(dag_id=dag_id, bundle_name="tests", fileloc="dag.py"))

    def run(
        self, dag_id: str, run_id: str, number: int = 0, known: bool = True, state: str = "success", **record: Any
    ) -> str:
        """Write a run with one stage, which starts `number` minutes after noon, and return its directory."""
        from airflow.models.dagrun import DagRun
        from airflow.utils.session import create_session

        directory = run_directory(self.root, dag_id, run_id)
        started_at = NOON + timedelta(minutes=number)
        task_key = TaskKey(dag_id=dag_id, run_id=run_id, task_id="export", directory=directory)
        fields: dict[str, Any] = {
            "task_key": task_key, "job": "export", "application": "local-1", "started_at": started_at.timestamp(),
            "seconds": 7.0, "status": "succeeded",
        } | record  # fmt: skip
        written = {"uri": f"{self.root}/toy/dataset", "version": number + 1} if fields["job"] == "export" else {}
        RunRecord(**fields | {"output": output(fields["job"], **written | record.get("output", {}))}).save()
        if known:
            with create_session() as session:
                session.add(
                    DagRun(dag_id=dag_id, run_id=run_id, run_after=started_at, run_type="manual", state=state,
                           start_date=started_at)
                )  # fmt: skip
        return directory


@pytest.fixture(scope="module")
def server(airflow_database: Path) -> Iterator[Any]:
    """Start Airflow's API server with its plugins and an auth manager with several users."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__CORE__AUTH_MANAGER", "tests.plugins.pages.users.OwnDags")
        patch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "s" * 64)
        patch.setenv("AIRFLOW__SCHEDULER__ALLOWED_RUN_ID_PATTERN", ".+")
        patch.setenv("AIRFLOW__CORE__ALLOW_DOUBLE_DOT_IN_IDS", "True")
        from airflow.api_fastapi.app import create_app
        from airflow.models.dagbundle import DagBundleModel
        from airflow.utils.session import create_session

        with create_session() as session:
            session.merge(DagBundleModel(name="tests"))
        yield create_app("core")


@pytest.fixture
def airflow(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Airflow]:
    """Yield a client of the server with a storage of this test; its DAGs are deleted at the end."""
    from airflow.models import DagModel
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    root = tmp_path.as_uri()
    connection = {"conn_type": "trainyard", "extra": {"storage": root}}
    monkeypatch.setenv("AIRFLOW_CONN_TRAINYARD_DEFAULT", json.dumps(connection))
    yield Airflow(server, root)
    with create_session() as session:
        session.execute(delete(DagRun))
        session.execute(delete(DagModel))
