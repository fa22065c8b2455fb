"""Read the list of pipelines: the newest run of each, the trend of its key metric, and what needs attention."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from trainyard.errors import TrainyardError
from trainyard.files import storage, uris
from trainyard.pages import live, runs
from trainyard.pages.runs import Run
from trainyard.pages.sparkline import Sparkline
from trainyard.report import overview
from trainyard.report.overview import Busy, Metric
from trainyard.report.scores import list_metrics
from trainyard.report.stages import Stage
from trainyard.schemas.runs.run_record import RunRecord

TREND_RUNS = 8
ELSEWHERE = "The run failed, and no Trainyard task stored an error; see the log of the failed task in Airflow."
"""The newest runs whose key metric a sparkline shows; of all but the newest, one record is read."""


@dataclass(frozen=True)
class Attention:
    """What a reader should look at first: a run, and what is wrong with it."""

    conn_id: str
    run: Run
    state: str
    text: str


@dataclass(frozen=True)
class Pipeline:
    """A DAG with runs in storage: their number, and the newest one."""

    conn_id: str
    dag_id: str
    count: int
    run: Run
    stages: Sequence[Stage]
    error: str
    running: Sequence[str]
    trend: Sparkline | None
    busy: Busy | None

    @property
    def attention(self) -> list[Attention]:
        """What needs attention in the newest run."""
        return find_attention(self.conn_id, self.run, self.stages, self.error)


def read_pipeline(conn_id: str, root: str, dag_id: str) -> Pipeline | None:
    """Return a pipeline with its newest run; None without runs."""
    directories = runs.list_directories(root, dag_id)
    its_runs = runs.list_runs(root, dag_id, directories, TREND_RUNS)
    if not its_runs:
        return None
    newest = its_runs[0]
    stages, error = runs.try_read_stages(newest)
    line = runs.build_usage_line(newest, runs.read_usages(newest))
    trend = _read_trend(its_runs, stages)
    return Pipeline(
        conn_id, dag_id, len(directories), newest, stages, error, live.list_running_names(newest), trend,
        overview.compute_busy(line),
    )  # fmt: skip


def find_attention(conn_id: str, run: Run, stages: Sequence[Stage], error: str) -> list[Attention]:
    """Return the failures and warnings of a run, failures first."""
    if error:
        return [Attention(conn_id, run, "failed", error)]
    failures = [stage for stage in stages if stage.record.status == "failed"]
    found = [Attention(conn_id, run, "failed", f"{s.record.task_key.task}: {s.error}") for s in failures]
    if not failures and run.state == "failed":
        found.append(Attention(conn_id, run, "failed", ELSEWHERE))
    warnings = ((stage, warning) for stage in stages for warning in stage.warnings)
    return found + [Attention(conn_id, run, "warning", f"{s.record.task_key.task}: {text}") for s, text in warnings]


def _read_trend(newest: Sequence[Run], stages: Sequence[Stage]) -> Sparkline | None:
    """Return the key metric of some runs, newest first, whose first one has these stages; None without one."""
    first, metric = 0, overview.find_metric([stage.record for stage in stages])
    while metric is None and first + 1 < len(newest):
        first += 1
        metric = overview.find_metric([stage.record for stage in runs.try_read_stages(newest[first])[0]])
    if metric is None:
        return None
    values = [value for run in newest[first + 1 :] if (value := _read_value(run, metric)) is not None]
    return Sparkline(metric.title, [*reversed(values), metric.value])


def _read_value(run: Run, metric: Metric) -> float | None:
    """Return the value of a metric in a run; None where the run has none or cannot be read."""
    uri = uris.join(run.directory, "records", f"{metric.task}.json")
    with suppress(TrainyardError, OSError, RuntimeError):
        scored = list_metrics(RunRecord.load(uri)) if storage.exists(uri) else ()
        return next((one.metrics.get(metric.name) for one in scored if one.model == metric.model), None)
    return None
