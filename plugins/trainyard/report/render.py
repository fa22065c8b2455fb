"""Render the report of a run: one standalone HTML file from the events, records and manifests of its stages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.report import curves, evaluations, timeline
from trainyard.report.curves import Chart
from trainyard.report.timeline import Timeline
from trainyard.schemas import events, manifest, outcomes
from trainyard.schemas.evaluation import Evaluation
from trainyard.schemas.manifest import DatasetManifest
from trainyard.schemas.run_record import RunRecord

EXPORTS = ("export", "featurize")

_TEMPLATES = Environment(
    loader=PackageLoader("trainyard.report", "templates"),
    autoescape=select_autoescape(["j2"]),
    undefined=StrictUndefined,
)


def render(directory: str) -> str:
    """Write `report.html`, and `trace.json` for Perfetto, to the run's directory, and return the report's URI."""
    trace = events.read(directory)
    storage.replace(storage.join(directory, "trace.json"), json.dumps({"traceEvents": trace}).encode())
    uri = storage.join(directory, "report.html")
    storage.replace(uri, render_page(outcomes.read_run(directory), trace).encode())
    return uri


def render_page(records: list[RunRecord], trace: list[dict[str, Any]]) -> str:
    """Return the report as HTML, from the records and events of one run."""
    stages = [(r, _headline(r)) for r in records]
    return _TEMPLATES.get_template("report.html.j2").render(
        task_key=records[0].task_key if records else None,
        stages=stages,
        timeline=timeline.draw_run(trace),
        trainings=_trainings(records, trace),
        evaluations=_evaluations(records),
        number=evaluations.format_number,
        datasets=[_card(r) for r in records if r.job in EXPORTS and r.status == "succeeded"],
        color=timeline.color_of,
    )


@dataclass(frozen=True)
class Training:
    """What the report shows of the workers of one task."""

    task: str
    curves: list[Chart]
    bottleneck: str
    phases: list[tuple[str, float, list[tuple[str, float, float]]]]
    clocks: list[tuple[str, float, float]]
    steps: Timeline | None


def _trainings(records: list[RunRecord], trace: list[dict[str, Any]]) -> list[Training]:
    """Return the tasks whose workers have curves or phases, in the order of their start."""
    bottlenecks = {r.task_key.task: str(r.output.get("bottleneck") or "") for r in records}
    trainings = [
        Training(
            task=task, curves=curves.draw_epochs(events), bottleneck=bottlenecks.get(task, ""),
            phases=timeline.sum_phases(events), clocks=timeline.find_clock_offsets(events),
            steps=timeline.draw_steps(events),
        )
        for task, events in timeline.group_by_task(trace).items()
    ]  # fmt: skip
    return [training for training in trainings if training.curves or training.phases]


def _headline(record: RunRecord) -> str:
    """Return the main figures of a stage."""
    output = record.output
    if record.status == "failed":
        return (record.error or "").partition("\n")[0]
    if record.job in EXPORTS:
        return f"{output['rows']:,} rows in {output['record_batches']} record batches of {output['shards']} shards"
    if record.job == "predict":
        return f"{output['rows']:,} rows"
    if record.job == "script":
        return f"{output['workers']} workers"
    metrics = {k: v for k, v in output.get("metrics", {}).items() if isinstance(v, float)}
    text = ", ".join(f"{name} {value:,.4g}" for name, value in metrics.items() if name != "rows_per_second")
    return f"{output['epochs']} epochs on {output['workers']} workers: {text}" if record.job == "train" else text


def _evaluations(records: list[RunRecord]) -> list[evaluations.EvaluationView]:
    """Return the evaluations that still exist."""
    uris = [r.output["evaluation"] for r in records if r.job == "evaluate" and r.status == "succeeded"]
    return [evaluations.build_view(Evaluation.load(uri)) for uri in uris if storage.exists(uri)]


def _card(record: RunRecord) -> dict[str, Any]:
    uri = record.output["uri"]
    try:
        dataset: DatasetManifest | None = manifest.read_current(uri)
    except TrainyardError:
        dataset = None
    if dataset and dataset.content_hash != record.output["content_hash"]:
        dataset = None
    return {"uri": uri, "output": record.output, "manifest": dataset}
