"""Promotion: whether a model becomes the champion, and its bundle at the champion's place.

CHAMPION/model.json                       the champion, as of any model; replaced atomically
CHAMPION/CONTENT_HASH/weights.safetensors  a copy, which later training does not touch
CHAMPION/CONTENT_HASH/promotion.json       the evaluation that decided, and how
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
    promoted: bool
    why: str


def judge(found: Evaluation, champion: str, reigning: str | None, rule: Rule) -> Verdict:
    """Whether the evaluated model takes the place at `champion` from the weights `reigning`, None when there are none.

    Raises TrainyardError when the evaluation does not say: it lacks a metric, or had another champion beside it.
    """
    candidate = found.model
    for name, bound in rule.required.items():
        value = _value(candidate, name)
        if (value - bound) * metrics.sign(name) < 0:
            return Verdict(False, f"{name} is {value:.4g}, and {bound:.4g} is required")
    _value(candidate, rule.metric)
    if reigning is None:
        return Verdict(True, f"there is no champion at {champion} yet")
    if reigning == candidate.weights_sha256:
        return Verdict(True, "it is the champion already")
    low, told = _gain(_beside(found, champion, reigning), rule)
    return Verdict(low > rule.margin, f"{rule.metric} is {told}; more than {rule.margin:g} is asked for")


def publish(found: Evaluation, champion: str, rule: Rule, why: str) -> None:
    """Make the evaluated model the champion, in one step."""
    version = found.model.weights_sha256[:16]
    origin, place = (storage.join(uri, version) for uri in (found.model.uri, champion))
    for name in storage.list_names(origin):
        if name != "evaluations" and not name.startswith("."):
            storage.copy(storage.join(origin, name), storage.join(place, name))
    told = Promotion(
        model=found.model.uri, evaluation=found.uri, rule=rule, why=why,
        promoted_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip
    storage.replace(storage.join(place, "promotion.json"), told.to_json().encode())
    storage.copy(storage.join(origin, "model.json"), storage.join(champion, "model.json"))


def reigning(champion: str) -> str | None:
    """The weights of the champion, None when there is none."""
    return model_artifact.read_current(champion).weights_sha256 if model_artifact.exists(champion) else None


def _beside(found: Evaluation, champion: str, reigning: str) -> Baseline:
    for other in found.baselines:
        if other.uri.rstrip("/") == champion.rstrip("/"):
            if other.weights_sha256 == reigning:
                return other
            raise TrainyardError(
                f"the champion at {champion} is not the one that {found.uri} compares with: another was promoted "
                "meanwhile. Evaluate again."
            )
    raise TrainyardError(
        f"{found.uri} does not compare with the champion at {champion}. Write baselines= of EvaluateOperator, "
        "with the champion's name."
    )


def _gain(other: Baseline, rule: Rule) -> tuple[float, str]:
    """How much better the model is, at least, and that in words."""
    difference, sign = other.differences[rule.metric], metrics.sign(rule.metric)
    if difference.value is None or difference.interval is None:
        raise TrainyardError(f"the evaluation has no value of metric {rule.metric!r} for both models.")
    low, high = sorted(sign * end for end in difference.interval)
    told = f"better by {sign * difference.value:.4g} ({low:.4g} to {high:.4g})"
    return (low if rule.confident else sign * difference.value), told


def _value(scores: Scores, name: str) -> float:
    value = scores.metrics.get(name)
    if not isinstance(value, int | float):
        raise TrainyardError(
            f"the evaluation of {scores.uri} has no metric {name!r}; it has {', '.join(scores.metrics)}. Add it to "
            "metrics= of EvaluateOperator."
        )
    return float(value)
