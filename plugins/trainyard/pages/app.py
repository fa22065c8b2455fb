"""Trainyard's pages in Airflow: pipelines, their runs, and their resource usage, for users who may read the DAGs.

A page is addressed by its path and a query: `run?conn_id=trainyard_default&dag_id=digits&run_id=...`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.datastructures import URL

from trainyard.compat import quote_login_target
from trainyard.errors import TrainyardError, UnavailableError, noted
from trainyard.files import storage
from trainyard.links import PAGES, in_airflow, report_uri
from trainyard.pages import access, comparison, html, live, models, pipelines, products, runs
from trainyard.pages.airflow_api import BaseUser, DagAccessEntity, GetUserDep, requires_access_dag
from trainyard.pages.pool import in_own_pool
from trainyard.pages.runs import Run
from trainyard.report import assets, render
from trainyard.report.overview import build_overview, compute_busy
from trainyard.usage import usage_report

app = FastAPI(title="Trainyard", openapi_url=None)

Readable = Annotated[set[str], Depends(access.get_readable_dags)]
Name = Annotated[str, Query(min_length=1)]
Number = Annotated[int, Query(alias="page")]
Chosen = Annotated[Sequence[str], Query(alias="run")]
MAX_REPORT_BYTES = 64 << 20
REPORT_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; sandbox allow-scripts; "
    "frame-ancestors 'self'"
)
"""The content security policy of a report: it fetches nothing, and its scripts run in an origin of their own, without
access to Airflow or to the login, whatever the file contains."""
HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'self'; object-src 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
"""The headers of all answers, beside those of an answer itself: other sites show no page in a frame."""
MAY_READ_RUNS = [Depends(requires_access_dag("GET", DagAccessEntity.RUN))]


@app.middleware("http")
async def add_headers(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    """Add the headers of all answers."""
    response = await answer(request)
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response


@app.get("/")
@in_own_pool
def show_overview(user: GetUserDep, readable: Readable, number: Number = 1) -> HTMLResponse:
    """Show the pipelines: DAGs that the user may read and that have runs in storage, each with its newest run."""
    dag_ids_by_storage, unreadable = _list_pipelines(user, readable)
    entries = [(conn_id, root, dag_id) for (conn_id, root), dag_ids in dag_ids_by_storage.items() for dag_id in dag_ids]
    page = runs.paginate(entries, number)
    shown = []
    for conn_id, root, dag_id in page.items:
        with noted(unreadable, f"{conn_id}, DAG {dag_id}"):
            if pipeline := pipelines.read_pipeline(conn_id, root, dag_id):
                shown.append(pipeline)
    attention = [item for pipeline in shown for item in pipeline.attention]
    return html.render("overview", pipelines=shown, page=page, attention=attention, unreadable=unreadable)


@app.get("/pipeline", dependencies=MAY_READ_RUNS)
@in_own_pool
def show_pipeline(conn_id: Name, dag_id: Name, number: Number = 1) -> HTMLResponse:
    """Show the runs of one pipeline, newest first."""
    root = access.get_storage(conn_id)
    page = runs.read_page(root, dag_id, number)
    rows = [runs.build_row(run) for run in page.items]
    newest = rows[0] if rows and page.number == 1 else None
    records = [(row.run.run_id, [stage.record for stage in row.stages]) for row in reversed(rows)]
    unreadable: dict[str, str] = {}
    return html.render(
        "pipeline",
        conn_id=conn_id,
        dag_id=dag_id,
        page=page,
        rows=rows,
        running={row.run.run_id: live.list_running_names(row.run) for row in rows},
        attention=pipelines.find_attention(conn_id, newest.run, newest.stages, newest.error) if newest else [],
        figures=products.collect_figures(records),
        datasets=products.collect_datasets(root, records, unreadable),
        champions=products.collect_champions(root, [record for _, of_run in records for record in of_run], unreadable),
        unreadable=unreadable,
    )


@app.get("/models", dependencies=MAY_READ_RUNS)
@in_own_pool
def show_models(conn_id: Name, dag_id: Name) -> HTMLResponse:
    """Show the models of one pipeline in all runs, with what differs between them and their metrics."""
    root = access.get_storage(conn_id)
    directories = runs.list_directories(root, dag_id)
    unreadable: dict[str, str] = {}
    newest = runs.list_runs(root, dag_id, directories, models.MAX_RUNS)
    table = models.build_table(models.read_models(root, newest, unreadable))
    return html.render(
        "models", conn_id=conn_id, dag_id=dag_id, table=table, total=len(directories), shown=len(newest),
        unreadable=unreadable,
    )  # fmt: skip


@app.get("/run", dependencies=MAY_READ_RUNS)
@in_own_pool
def show_run(conn_id: Name, dag_id: Name, run_id: Name) -> HTMLResponse:
    """Show the stages of one run, its running tasks, and its resource usage."""
    run = _find_run(conn_id, dag_id, run_id)
    stages, error = runs.try_read_stages(run)
    usages = runs.read_usages(run)
    unreadable: dict[str, str] = {}
    return html.render(
        "run",
        conn_id=conn_id,
        run=run,
        stages=stages,
        error=error,
        usages=usages,
        usage=runs.build_usage_line(run, usages),
        overview=build_overview([stage.record for stage in stages], usages),
        running_tasks=live.list_running_tasks(run, unreadable),
        is_over=live.is_over(run),
        has_report=storage.exists(report_uri(run.directory)),
        unreadable=unreadable,
    )


@app.get("/compare", dependencies=MAY_READ_RUNS)
@in_own_pool
def show_comparison(conn_id: Name, dag_id: Name, chosen: Chosen = ()) -> HTMLResponse:
    """Show runs of one pipeline side by side."""
    run_ids = list(dict.fromkeys(chosen))
    if not 2 <= len(run_ids) <= comparison.MAX_RUNS:
        raise HTTPException(
            400, f"Select 2 to {comparison.MAX_RUNS} runs of {dag_id} to compare; {len(run_ids)} given."
        )
    unreadable: dict[str, str] = {}
    compared = comparison.compare([_find_run(conn_id, dag_id, run_id) for run_id in run_ids], unreadable)
    return html.render("compare", conn_id=conn_id, dag_id=dag_id, comparison=compared, unreadable=unreadable)


@app.get("/usage")
@in_own_pool
def show_usage(user: GetUserDep, readable: Readable) -> HTMLResponse:
    """Show what the newest runs of all readable pipelines allocated, and how much of it was busy."""
    dag_ids_by_storage, unreadable = _list_pipelines(user, readable)
    by_run = {}
    for (conn_id, root), dag_ids in dag_ids_by_storage.items():
        directories = {}
        for dag_id in dag_ids:
            with noted(unreadable, f"{conn_id}, DAG {dag_id}"):
                directories[dag_id] = runs.list_directories(root, dag_id)
        for run in runs.list_newest_runs(root, directories, runs.MAX_REPORTED_RUNS):
            if usage := runs.build_run_usage(run, runs.read_usages(run)):
                by_run[conn_id, run.dag_id, run.run_id] = usage
    usages = list(by_run.values())
    sums = [
        ("Total", [usage_report.sum_runs("Total", usages)]),
        ("By DAG", usage_report.group_runs(lambda usage: usage.dag_id, usages)),
        ("By queue", usage_report.group_queues(usages)),
        ("By week", usage_report.group_runs(usage_report.week_of, usages)),
    ]
    lines = [(names, usage_report.sum_runs("", [usage])) for names, usage in by_run.items()]
    most_idle = sorted(lines, key=lambda named: usage_report.idle_key(named[1]), reverse=True)[: runs.ROWS]
    return html.render(
        "usage",
        sums=sums,
        most_idle=most_idle,
        count=len(usages),
        unreadable=unreadable,
        has_gpus=any(line.allocated.gpus for _, line in lines),
        busy_of=compute_busy,
    )


@app.get("/report", dependencies=MAY_READ_RUNS)
@in_own_pool
def show_report(conn_id: Name, dag_id: Name, run_id: Name) -> HTMLResponse:
    """Show the report of a run, as of its last stage that has ended."""
    directory = _find_run(conn_id, dag_id, run_id).directory
    render.refresh(directory)
    uri = report_uri(directory)
    if not storage.exists(uri):
        raise HTTPException(
            404, f"Run {run_id} of {dag_id} has no report yet: none of its stages has ended, or it is being written."
        )
    return HTMLResponse(
        storage.read(uri, MAX_REPORT_BYTES).decode(errors="replace"), headers={"Content-Security-Policy": REPORT_POLICY}
    )


@app.get("/charts.js")
async def show_charts() -> Response:
    """Return the scripts of charts; the pages address them by their hash, so a browser keeps them."""
    forever = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(assets.read_charts(), media_type="text/javascript", headers=forever)


@app.exception_handler(TrainyardError)
def handle_unreadable(_: object, error: TrainyardError) -> HTMLResponse:
    """Show what in storage cannot be read."""
    return html.render("refused", 500, why=error)


@app.exception_handler(OSError)
@app.exception_handler(RuntimeError)
@app.exception_handler(UnavailableError)
def handle_unreachable(_: object, error: Exception) -> HTMLResponse:
    """Show why the storage cannot be reached."""
    return html.render("refused", 503, why=f"The storage cannot be read: {error}")


@app.exception_handler(Exception)
def handle_unexpected(_: object, error: Exception) -> HTMLResponse:
    """Show the error of a page; the log of Airflow's API server has its traceback."""
    return html.render("refused", 500, why=f"The page cannot be shown: {type(error).__name__}: {error}")


@app.exception_handler(HTTPException)
def handle_refused(request: Request, error: HTTPException) -> Response:
    """Show why a page is not available, or send a browser without a valid login to Airflow's login page."""
    logged_out = error.status_code == 401 or error.detail == "Invalid JWT token"
    if logged_out and "text/html" in request.headers.get("Accept", ""):
        return RedirectResponse(_login(request.url))
    return html.render("refused", error.status_code, why=error.detail)


def _login(page: URL) -> str:
    """Return the address of Airflow's login page, which leads back to the page afterwards."""
    name = page.path.rpartition("/")[2]
    query = f"?{page.query}" if page.query else ""
    target = quote_login_target(in_airflow(f"{PAGES}/{name}{query}"))
    return in_airflow(f"/api/v2/auth/login?{urlencode({'next': target})}")


def _list_pipelines(user: BaseUser, readable: set[str]) -> tuple[dict[tuple[str, str], list[str]], dict[str, str]]:
    """Return (connection, storage) -> the pipelines there whose runs the user may read, and what cannot be read.

    The latter has connections whose settings are not valid, or whose storage cannot be read, each with the reason.
    """
    storages, unreadable = access.list_storages()
    dag_ids = {}
    for conn_id, root in storages.items():
        with noted(unreadable, conn_id):
            dag_ids[conn_id, root] = access.filter_readable_runs(user, runs.list_pipelines(root, readable))
    return dag_ids, unreadable


def _find_run(conn_id: str, dag_id: str, run_id: str) -> Run:
    run = runs.find_run(access.get_storage(conn_id), dag_id, run_id)
    if run is None:
        raise HTTPException(404, f"Run {run_id} of {dag_id} has no directory in the storage of {conn_id}.")
    return run
