"""The page that shows a run's report to those who may read its DAG."""

from __future__ import annotations

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import HTMLResponse

from trainyard.connections import TrainyardHook
from trainyard.contract import storage
from trainyard.links import report_uri
from trainyard.plan import run_directory

app = FastAPI(title="Trainyard", openapi_url=None)


@app.get(
    "/reports/{conn_id}/{dag_id}/{run_id}",
    dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.RUN))],
)
def report(conn_id: str, dag_id: str, run_id: str) -> HTMLResponse:
    """The report as it stands after the stages that have ended."""
    uri = report_uri(run_directory(TrainyardHook(conn_id).get_conn().storage, dag_id, run_id))
    if not storage.exists(uri):
        raise HTTPException(404, f"Run {run_id} of {dag_id} has no report yet: none of its stages has ended.")
    return HTMLResponse(storage.read(uri).decode())
