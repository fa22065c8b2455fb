"""The report of a run: events, records and manifests of all its stages in one standalone HTML file."""

from __future__ import annotations

import json
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.report import curves, evaluations, timeline
from trainyard.schemas import events, manifest, run_record
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
    """Write `report.html`, and `trace.json` for Perfetto, to the run's directory; returns the report's URI."""
    found = events.read(directory)
    storage.replace(storage.join(directory, "trace.json"), json.dumps({"traceEvents": found}).encode())
    uri = storage.join(directory, "report.html")
    storage.replace(uri, page(run_record.read_run(directory), found).encode())
    return uri


def page(records: list[RunRecord], found: list[dict[str, Any]]) -> str:
    """The report as HTML, of the records and events of one run."""
    stages = [(r, _headline(r)) for r in records]
    return _TEMPLATES.get_template("report.html.j2").render(
        task_key=records[0].task_key if records else None,
        stages=stages,
        timeline=timeline.whole(found),
        steps=timeline.steps(found),
        phases=timeline.phases(found),
        clocks=timeline.clocks(found),
        bottlenecks=[(r.task_key.task, r.output["bottleneck"]) for r in records if r.output.get("bottleneck")],
        curves=curves.of_epochs(found),
        evaluations=_evaluations(records),
        number=evaluations.number,
        datasets=[_card(r) for r in records if r.job in EXPORTS and r.status == "succeeded"],
        color=timeline.color,
    )


def _headline(found: RunRecord) -> str:
    """The most telling figures of a stage, in a few words."""
    output = found.output
    if found.status == "failed":
        return (found.error or "").partition("\n")[0]
    if found.job in EXPORTS:
        return f"{output['rows']:,} rows in {output['record_batches']} record batches of {output['shards']} shards"
    if found.job == "predict":
        return f"{output['rows']:,} rows"
    if found.job == "script":
        return f"{output['workers']} workers"
    metrics = {k: v for k, v in output.get("metrics", {}).items() if isinstance(v, float)}
    shown = ", ".join(f"{name} {value:,.4g}" for name, value in metrics.items() if name != "rows_per_second")
    return f"{output['epochs']} epochs on {output['workers']} workers: {shown}" if found.job == "train" else shown


def _evaluations(records: list[RunRecord]) -> list[evaluations.Shown]:
    """Those that are still there."""
    uris = [r.output["evaluation"] for r in records if r.job == "evaluate" and r.status == "succeeded"]
    return [evaluations.shown(Evaluation.load(uri)) for uri in uris if storage.exists(uri)]


def _card(found: RunRecord) -> dict[str, Any]:
    uri = found.output["uri"]
    try:
        dataset: DatasetManifest | None = manifest.read_current(uri)
    except TrainyardError:
        dataset = None
    if dataset and dataset.content_hash != found.output["content_hash"]:
        dataset = None
    return {"uri": uri, "output": found.output, "manifest": dataset}
