"""The model card: the contents of a model artifact as Markdown, for people."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.schemas.datasets.manifest import Column
from trainyard.schemas.model_artifact import ModelArtifact


def render_markdown(artifact: ModelArtifact) -> str:
    """Return the card of a model artifact; model.json beside it has the same for programs."""
    return "\n".join(_render_lines(artifact)) + "\n"


def _render_lines(artifact: ModelArtifact) -> Iterator[str]:
    yield f"# {_escape(artifact.recipe)}"
    yield ""
    yield f"Trained on {_escape(artifact.dataset)} for {artifact.epochs} epochs; finished {artifact.written_at}."
    yield ""
    metrics = [(name, f"{value:.6g}") for name, value in artifact.metrics.items()]
    yield from _render_table("metric (best epoch)", metrics)
    columns = [(c.name, f"{c.type} {list(c.shape)}, {_describe_values(artifact, c)}") for c in artifact.inputs]
    labels = [
        (label.name, f"{_describe_label(artifact, label)}, the label{f' of the head {head}' if head else ''}")
        for head, label in artifact.labels.items()
    ]
    yield from _render_table("column", columns + labels)
    yield from _render_table("parameter", [(name, repr(value)) for name, value in artifact.recipe_params.items()])
    hours = artifact.workers * artifact.seconds / 3600
    mix = [
        (f"{m.share:.0%} of the rows", f"{m.dataset}, version {m.dataset_version}, content {m.dataset_hash}")
        for m in artifact.mix
    ]
    origin = [
        ("dataset", f"version {artifact.dataset_version}, content {artifact.dataset_hash}"),
        *mix,
        *([("initial weights", artifact.start_from)] if artifact.start_from else []),
        ("weights", f"sha256 {artifact.weights_sha256}"),
        ("training", f"{artifact.workers} workers on {artifact.device}, {artifact.seconds:,.0f} s"),
        ("GPU hours" if artifact.device == "cuda" else "worker hours (no GPU)", f"{hours:.3g}"),
        ("application", artifact.application or "none (trained by a direct call of fit)"),
        ("versions", ", ".join(f"{name} {version}" for name, version in artifact.versions.items())),
    ]
    yield from _render_table("origin", origin)


def _describe_values(artifact: ModelArtifact, column: Column) -> str:
    sizes = artifact.fitted.sizes if artifact.fitted else {}
    if column.name in sizes:
        return f"{sizes[column.name] - 1:,} categories"
    return _describe_scaling(artifact, column)


def _describe_label(artifact: ModelArtifact, label: Column) -> str:
    """Return the type of the label, or its classes if they have names."""
    fitted = artifact.fitted
    return f"{fitted.sizes[label.name]:,} classes" if fitted and label.name in fitted.labels else label.type


def _describe_scaling(artifact: ModelArtifact, column: Column) -> str:
    if column.name not in artifact.normalization:
        return "not normalized"
    per = artifact.normalization[column.name].per
    return "normalized" if per == "all" else f"normalized by {per}"


def _render_table(head: str, rows: list[tuple[str, str]]) -> Iterator[str]:
    if rows:
        yield f"| {head} | |"
        yield "| --- | --- |"
        yield from (f"| {_escape(name)} | {_escape(value)} |" for name, value in rows)
        yield ""


def _escape(text: str) -> str:
    """Escape Markdown in names and values, which users choose."""
    for special in "\\`*_{}[]<>|#":
        text = text.replace(special, f"\\{special}")
    return text.replace("\n", " ")
