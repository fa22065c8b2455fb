"""Trainyard's pages in Airflow: pipelines and their runs, for those who may read their DAGs.

A page is named by its path and a query: `run?conn_id=trainyard_default&dag_id=digits&run_id=...`.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.datastructures import URL

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.links import PAGES, in_airflow, report_uri
from trainyard.pages import access, html, live, products, runs
from trainyard.pages.runs import Run
from trainyard.usage import usage_report

app = FastAPI(title="Trainyard", openapi_url=None)

Readable = Annotated[set[str], Depends(access.readable_dags)]
Name = Annotated[str, Query(min_length=1)]
Number = Annotated[int, Query(alias="page")]
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""A report fetches nothing and runs nothing, whatever stands in the file."""
MAY_READ_RUNS = [Depends(requires_access_dag("GET", DagAccessEntity.RUN))]


@app.get("/")
def overview(session: SessionDep, user: GetUserDep, readable: Readable, number: Number = 1) -> HTMLResponse:
    """The pipelines: DAGs that the user may read and that have runs in storage, each with its newest run."""
    pipelines = _pipelines(session, user, readable)
    found = [(conn_id, root, dag_id) for (conn_id, root), dag_ids in pipelines.items() for dag_id in dag_ids]
    shown = runs.page(found, number)
    rows = []
    for conn_id, root, dag_id in shown.items:
        of_it = runs.of_pipeline(session, root, dag_id)
        rows += [(conn_id, dag_id, len(of_it), of_it[0], *runs.readable_stages(of_it[0]))] if of_it else []
    return html.render("overview", rows=rows, shown=shown)


@app.get("/pipeline", dependencies=MAY_READ_RUNS)
def pipeline(session: SessionDep, conn_id: Name, dag_id: Name, number: Number = 1) -> HTMLResponse:
    """The runs of one pipeline, newest first."""
    root = access.storage_root(conn_id)
    shown = runs.page(runs.of_pipeline(session, root, dag_id), number)
    rows = [runs.row(run) for run in shown.items]
    made = [(row.run.run_id, [stage.record for stage in row.stages]) for row in reversed(rows)]
    return html.render(
        "pipeline", conn_id=conn_id, dag_id=dag_id, shown=shown, rows=rows, figures=products.figures(made),
        datasets=products.datasets(root, made), champions=products.champions(root, [r for _, of in made for r in of]),
    )  # fmt: skip


@app.get("/run", dependencies=MAY_READ_RUNS)
def run(session: SessionDep, conn_id: Name, dag_id: Name, run_id: Name) -> HTMLResponse:
    """What became of one run."""
    found = _run(session, conn_id, dag_id, run_id)
    stages, trouble = runs.readable_stages(found)
    usages = runs.usages(found)
    return html.render(
        "run", conn_id=conn_id, run=found, stages=stages, trouble=trouble, usages=usages, line=runs.line(found, usages),
        live=live.under_way(found), over=found.state in live.OVER,
        reported=storage.exists(report_uri(found.directory)),
    )  # fmt: skip


@app.get("/usage")
def usage(session: SessionDep, user: GetUserDep, readable: Readable) -> HTMLResponse:
    """What the newest runs of all pipelines that the user may read held, and how much of it was busy."""
    found = {
        (conn_id, run.dag_id, run.run_id): account
        for (conn_id, root), dag_ids in _pipelines(session, user, readable).items()
        for run in runs.newest(session, root, dag_ids, runs.IN_USAGE_REPORT)
        if (account := runs.account(run, runs.usages(run)))
    }
    accounts = list(found.values())
    sums = [
        ("In all", [usage_report.sum_runs("Sum", accounts)]),
        ("By DAG", usage_report.group_runs(lambda account: account.dag_id, accounts)),
        ("By queue", usage_report.group_queues(accounts)),
        ("By week", usage_report.group_runs(usage_report.week, accounts)),
    ]
    lines = [(names, usage_report.sum_runs("", [account])) for names, account in found.items()]
    worst = sorted(lines, key=lambda named: usage_report.idle_key(named[1]), reverse=True)[: runs.ROWS]
    return html.render("usage", sums=sums, worst=worst, count=len(accounts))


@app.get("/report", dependencies=MAY_READ_RUNS)
def report(session: SessionDep, conn_id: Name, dag_id: Name, run_id: Name) -> HTMLResponse:
    """The report as it stands after the stages that have ended."""
    uri = report_uri(_run(session, conn_id, dag_id, run_id).directory)
    if not storage.exists(uri):
        raise HTTPException(404, f"Run {run_id} of {dag_id} has no report yet: none of its stages has ended.")
    return HTMLResponse(storage.read(uri).decode(), headers={"Content-Security-Policy": REPORT_POLICY})


@app.exception_handler(TrainyardError)
def unreadable(_: object, error: TrainyardError) -> HTMLResponse:
    """What in storage cannot be read."""
    return html.render("refused", 500, why=error)


@app.exception_handler(HTTPException)
def refused(request: Request, error: HTTPException) -> Response:
    """Why there is no page; whom Airflow does not know, and who wants a page and no answer to a script, may log in."""
    unknown = error.status_code == 401 or error.detail == "Invalid JWT token"
    if unknown and "text/html" in request.headers.get("Accept", ""):
        return RedirectResponse(_login(request.url))
    return html.render("refused", error.status_code, why=error.detail)


def _login(page: URL) -> str:
    """Airflow's login, that leads to the page when it is done, as Airflow's own pages have it."""
    name = page.path.rpartition("/")[2]
    query = f"?{page.query}" if page.query else ""
    return in_airflow(f"/api/v2/auth/login?{urlencode({'next': in_airflow(f'{PAGES}/{name}{query}')})}")


def _pipelines(session: SessionDep, user: BaseUser, readable: set[str]) -> dict[tuple[str, str], list[str]]:
    """For each connection and the root that it names, the pipelines there whose runs the user may read."""
    return {
        (conn_id, root): access.with_readable_runs(session, user, runs.pipelines(root, readable))
        for conn_id, root in access.roots(session).items()
    }


def _run(session: SessionDep, conn_id: str, dag_id: str, run_id: str) -> Run:
    found = runs.one(session, access.storage_root(conn_id), dag_id, run_id)
    if found is None:
        raise HTTPException(404, f"Run {run_id} of {dag_id} has left nothing in the storage of {conn_id}.")
    return found
