"""Make one model of several: an artifact with copies of its members, which is applied as any other model."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from trainyard import __version__
from trainyard.errors import TrainyardError
from trainyard.files import storage, uris
from trainyard.schemas import model_artifact
from trainyard.schemas.datasets import fitted_state
from trainyard.schemas.datasets.manifest import Column
from trainyard.schemas.model_artifact import Combination, Ensemble, Member, ModelArtifact

COPIED = (fitted_state.FILE, "model.json")
"""What is copied of a member beside its weights."""


def build(
    models: Sequence[tuple[str, ModelArtifact]], by: Combination = "mean", weights: Sequence[float] | None = None
) -> ModelArtifact:
    """Return the artifact of an ensemble; `save` writes it. A pure function.

    Args:
        models: The URI and the artifact of each member.
        by: How outputs are combined.
        weights: What the output of each member counts. By default they count alike.

    Raises:
        TrainyardError: There are too few members or weights, or the members do not have the same outputs and inputs.
    """
    if len(models) < 2:
        raise TrainyardError(f"models= has {len(models)} model{'s' * (len(models) != 1)}; write two or more.")
    shares = _normalize(weights, len(models))
    for model in models[1:]:
        _check_alike(models[0], model)
    first = models[0][1]
    members = tuple(Member(uri=uri, weight=w, artifact=one) for (uri, one), w in zip(models, shares, strict=True))
    identity = [by, *([member.artifact.weights_sha256, member.weight] for member in members)]
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
    return first.model_copy(
        update={
            "ensemble": Ensemble(by=by, members=members), "weights_sha256": digest, "normalization": {}, "aliases": {},
            "inputs": tuple(_merge_inputs(models).values()), "start_from": None, "mix": (), "metrics": {},
            "epochs": 0, "workers": 0, "seconds": 0.0, "device": "", "application": "",
            "written_at": datetime.now(UTC).isoformat(timespec="seconds"), "versions": {"trainyard": __version__},
            "weights": tuple(
                file.model_copy(update={"path": f"{digest[:16]}/members/{number}/{file.path}"})
                for number, (_, one) in enumerate(models) for file in one.weights
            ),
        }
    )  # fmt: skip


def save(model: str, ensemble: ModelArtifact) -> None:
    """Copy the members of an ensemble below `model`, and make it the current version in one step.

    Raises:
        FileNotFoundError: A member was removed.
    """
    assert ensemble.ensemble is not None
    for number, member in enumerate(ensemble.ensemble.members):
        origin, target = member.uri, model_artifact.member_uri(model, ensemble, number)
        folder = member.artifact.folder
        names = [file.path for file in member.artifact.weights]
        names += [f"{folder}/{name}" for name in COPIED if storage.exists(uris.join(origin, folder, name))]
        for name in names:
            storage.copy(uris.join(origin, name), uris.join(target, name))
    fitted = uris.join(
        ensemble.ensemble.members[0].uri, ensemble.ensemble.members[0].artifact.folder, fitted_state.FILE
    )
    if ensemble.fitted:
        storage.copy(fitted, uris.join(model, ensemble.folder, fitted_state.FILE))
    document = ensemble.to_json().encode()
    storage.replace(uris.join(model, ensemble.folder, "card.md"), _render_card(ensemble.ensemble).encode())
    storage.replace(uris.join(model, ensemble.folder, "model.json"), document)
    storage.replace(uris.join(model, "model.json"), document)


def _normalize(weights: Sequence[float] | None, count: int) -> list[float]:
    """Return weights that sum to 1."""
    given = [1.0] * count if weights is None else [float(weight) for weight in weights]
    if len(given) != count or not all(math.isfinite(weight) and weight > 0 for weight in given):
        raise TrainyardError(
            f"weights={weights!r} is not valid; write {count} numbers greater than 0, one for each model."
        )
    return [weight / sum(given) for weight in given]


def _check_alike(first: tuple[str, ModelArtifact], other: tuple[str, ModelArtifact]) -> None:
    """Check that two members have the same labels, heads, classes and categories."""
    (name, one), (other_name, another) = first, other
    labels, others = _describe(one.labels), _describe(another.labels)
    if labels != others:
        raise TrainyardError(
            f"the models of an ensemble must have the same outputs, but {name} was trained on {labels}, and "
            f"{other_name} on {others}."
        )
    if (one.fitted and one.fitted.sha256) != (another.fitted and another.fitted.sha256):
        raise TrainyardError(
            f"the models of an ensemble must have the same classes and categories, but the datasets of {name} and "
            f"{other_name} were fitted on different rows. Train both on one dataset, or export without refit."
        )


def _describe(labels: Mapping[str, Column]) -> str:
    described = [
        f"the label {label.name!r} of shape {list(label.shape)}{f' (head {head!r})' if head else ''}"
        for head, label in labels.items()
    ]
    return ", ".join(described) or "no label"


def _merge_inputs(models: Sequence[tuple[str, ModelArtifact]]) -> dict[str, Column]:
    """Return the columns that members read, by name."""
    columns: dict[str, Column] = {}
    owners: dict[str, str] = {}
    for uri, artifact in models:
        for column in artifact.inputs:
            known = columns.setdefault(column.name, column)
            owner = owners.setdefault(column.name, uri)
            if known != column:
                raise TrainyardError(
                    f"the models of an ensemble must read a column alike, but {column.name!r} is {known.type} of shape "
                    f"{list(known.shape)} for {owner}, and {column.type} of shape {list(column.shape)} for {uri}."
                )
    return columns


def _render_card(ensemble: Ensemble) -> str:
    """Return the model card of an ensemble."""
    rows = [
        f"| {member.uri} | {member.artifact.folder} | {member.weight:.4g} | "
        f"{', '.join(f'{name} {value:.4g}' for name, value in member.artifact.metrics.items())} |"
        for member in ensemble.members
    ]
    head = ["# Ensemble", "", f"The {ensemble.by} of {len(rows)} models.", ""]
    return "\n".join([*head, "| model | version | weight | metrics |", "| --- | --- | --- | --- |", *rows, ""])
