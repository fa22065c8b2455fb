"""The model card: what a bundle says of a model, for people."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.schemas.manifest import Column
from trainyard.schemas.model_artifact import ModelArtifact


def markdown(artifact: ModelArtifact) -> str:
    """The card as Markdown; model.json beside it has the same for programs."""
    return "\n".join(_lines(artifact)) + "\n"


def _lines(artifact: ModelArtifact) -> Iterator[str]:
    yield f"# {_plain(artifact.recipe)}"
    yield ""
    yield f"Trained on {_plain(artifact.dataset)} in {artifact.epochs} epochs, until {artifact.written_at}."
    yield ""
    yield from _table("figure of the best epoch", [(name, f"{value:.6g}") for name, value in artifact.metrics.items()])
    columns = [(c.name, f"{c.type} {list(c.shape)}, {_scaled(artifact, c)}") for c in artifact.inputs]
    label = [(artifact.label.name, f"{artifact.label.type}, the label")] if artifact.label else []
    yield from _table("column", columns + label)
    yield from _table("parameter", [(name, repr(value)) for name, value in artifact.recipe_params.items()])
    hours = artifact.workers * artifact.seconds / 3600
    told = {
        "dataset": f"version {artifact.dataset_version}, content {artifact.dataset_hash}",
        **{
            f"{mixed.share:.0%} of the rows": f"{mixed.dataset}, version {mixed.dataset_version}, content "
            f"{mixed.dataset_hash}"
            for mixed in artifact.mix
        },
        "weights": f"sha256 {artifact.weights_sha256}",
        "training": f"{artifact.workers} workers on {artifact.device}, {artifact.seconds:,.0f} s",
        "GPU hours" if artifact.device == "cuda" else "rank hours, no GPU": f"{hours:.3g}",
        "application": artifact.application or "none: trained by hand",
        "versions": ", ".join(f"{name} {version}" for name, version in artifact.versions.items()),
    }
    yield from _table("where it comes from", list(told.items()))


def _scaled(artifact: ModelArtifact, column: Column) -> str:
    if column.name not in artifact.normalization:
        return "as it is"
    per = artifact.normalization[column.name].per
    return "normalized" if per == "all" else f"normalized by {per}"


def _table(head: str, rows: list[tuple[str, str]]) -> Iterator[str]:
    if rows:
        yield f"| {head} | |"
        yield "| --- | --- |"
        yield from (f"| {_plain(name)} | {_plain(told)} |" for name, told in rows)
        yield ""


def _plain(text: str) -> str:
    """Names of columns and values of parameters are anybody's: none may end a cell, or be taken for markup."""
    for special in "\\`*_{}[]<>|#":
        text = text.replace(special, f"\\{special}")
    return text.replace("\n", " ")
