"""The model card: what a bundle says of a model, for people."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.contract.bundle import ModelBundle
from trainyard.contract.manifest import Column


def markdown(bundle: ModelBundle) -> str:
    """The card as Markdown; bundle.json beside it has the same for programs."""
    return "\n".join(_lines(bundle)) + "\n"


def _lines(bundle: ModelBundle) -> Iterator[str]:
    yield f"# {_plain(bundle.recipe)}"
    yield ""
    yield f"Trained on {_plain(bundle.dataset)} in {bundle.epochs} epochs, until {bundle.written_at}."
    yield ""
    yield from _table("figure of the best epoch", [(name, f"{value:.6g}") for name, value in bundle.metrics.items()])
    columns = [(c.name, f"{c.type} {list(c.shape)}, {_scaled(bundle, c)}") for c in bundle.inputs]
    label = [(bundle.label.name, f"{bundle.label.type}, the label")] if bundle.label else []
    yield from _table("column", columns + label)
    yield from _table("parameter", [(name, repr(value)) for name, value in bundle.recipe_params.items()])
    hours = bundle.ranks * bundle.seconds / 3600
    told = {
        "dataset": f"version {bundle.dataset_version}, content {bundle.dataset_hash}",
        **{
            f"{mixed.share:.0%} of the rows": f"{mixed.dataset}, version {mixed.dataset_version}, content "
            f"{mixed.dataset_hash}"
            for mixed in bundle.mix
        },
        "weights": f"sha256 {bundle.weights_sha256}",
        "training": f"{bundle.ranks} ranks on {bundle.device}, {bundle.seconds:,.0f} s",
        "GPU hours" if bundle.device == "cuda" else "rank hours, no GPU": f"{hours:.3g}",
        "application": bundle.application or "none: trained by hand",
        "versions": ", ".join(f"{name} {version}" for name, version in bundle.versions.items()),
    }
    yield from _table("where it comes from", list(told.items()))


def _scaled(bundle: ModelBundle, column: Column) -> str:
    if column.name not in bundle.normalisation:
        return "as it is"
    per = bundle.normalisation[column.name].per
    return "normalised" if per == "all" else f"normalised by {per}"


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
