"""Decide whether a model becomes the champion, and copy its artifact to the champion's location.

CHAMPION/model.json                        the champion's model artifact; replaced atomically
CHAMPION/CONTENT_HASH/weights.safetensors  a copy, which later trainings do not change
CHAMPION/CONTENT_HASH/promotion.json       the evaluation that decided, and the rule
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.schemas import model_artifact
from trainyard.schemas.evaluation import Baseline, Evaluation, Scores
from trainyard.schemas.promotion import Promotion, Rule
from trainyard.schemas.specs import metrics


@dataclass(frozen=True)
class Verdict:
    """Whether a model is promoted, and the reason."""

    promoted: bool
    why: str


def decide(evaluation: Evaluation, champion: str, champion_weights: str | None, rule: Rule) -> Verdict:
    """Decide whether the evaluated model replaces the champion. A pure function.

    Args:
        evaluation: The evaluation of the model, with the champion among its baselines.
        champion: The URI of the champion.
        champion_weights: The sha256 of the champion's weights, None if there is no champion yet.
        rule: What the model must reach.

    Raises:
        TrainyardError: The evaluation has no such metric, or compares with another champion.
    """
    candidate = evaluation.model
    for name, bound in rule.required.items():
        value = _value(candidate, name)
        if (value - bound) * metrics.sign(name) < 0:
            return Verdict(False, f"{name} is {value:.4g}, and {bound:.4g} is required")
    _value(candidate, rule.metric)
    if champion_weights is None:
        return Verdict(True, f"there is no champion at {champion} yet")
    if champion_weights == candidate.weights_sha256:
        return Verdict(True, "it is the champion already")
    gain, described = _gain(_baseline(evaluation, champion, champion_weights), rule)
    return Verdict(gain > rule.margin, f"{rule.metric} is {described}; it must be better by more than {rule.margin:g}")


def publish(evaluation: Evaluation, champion: str, rule: Rule, why: str) -> None:
    """Make the evaluated model the champion: copy its files, then replace CHAMPION/model.json in one step."""
    version = evaluation.model.weights_sha256[:16]
    origin, target = (storage.join(uri, version) for uri in (evaluation.model.uri, champion))
    names = storage.list_names(origin)
    if "model.json" not in names:
        raise TrainyardError(f"{origin} has no model.json: the evaluated model was removed. Train and evaluate again.")
    for name in names:
        if name != "evaluations" and not name.startswith("."):
            storage.copy(storage.join(origin, name), storage.join(target, name))
    promotion = Promotion(
        model=evaluation.model.uri, evaluation=evaluation.uri, rule=rule, why=why,
        promoted_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip
    storage.replace(storage.join(target, "promotion.json"), promotion.to_json().encode())
    storage.copy(storage.join(origin, "model.json"), storage.join(champion, "model.json"))


def champion_weights(champion: str) -> str | None:
    """Return the sha256 of the champion's weights, None if there is no champion."""
    return model_artifact.read_current(champion).weights_sha256 if model_artifact.exists(champion) else None


def _baseline(evaluation: Evaluation, champion: str, champion_weights: str) -> Baseline:
    for baseline in evaluation.baselines:
        if baseline.uri.rstrip("/") == champion.rstrip("/"):
            if baseline.weights_sha256 == champion_weights:
                return baseline
            raise TrainyardError(
                f"{evaluation.uri} compares with a champion at {champion} that another promotion has replaced "
                "meanwhile. Evaluate again."
            )
    raise TrainyardError(
        f"{evaluation.uri} does not compare with the champion at {champion}. Add the champion's name to baselines= of "
        "EvaluateOperator."
    )


def _gain(baseline: Baseline, rule: Rule) -> tuple[float, str]:
    """Return how much better the model is, at least, and a description."""
    difference, sign = baseline.differences[rule.metric], metrics.sign(rule.metric)
    if difference.value is None or difference.interval is None:
        raise TrainyardError(f"the evaluation has no value of metric {rule.metric!r} for both models.")
    low, high = sorted(sign * end for end in difference.interval)
    described = f"better by {sign * difference.value:.4g} ({low:.4g} to {high:.4g})"
    return (low if rule.confident else sign * difference.value), described


def _value(scores: Scores, name: str) -> float:
    value = scores.metrics.get(name)
    if value is None and name in scores.metrics:
        raise TrainyardError(
            f"metric {name!r} has no value in the evaluation of {scores.uri}, for example because its split has one "
            "class. Write another split= or metrics= of EvaluateOperator."
        )
    if not isinstance(value, int | float):
        raise TrainyardError(
            f"the evaluation of {scores.uri} has no metric {name!r}; it has {', '.join(scores.metrics)}. Add it to "
            "metrics= of EvaluateOperator."
        )
    return float(value)
