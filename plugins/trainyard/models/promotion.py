"""Decide whether a model becomes the champion, and copy its artifact to the champion's location.

CHAMPION/model.json                        the champion's model artifact; replaced atomically
CHAMPION/CONTENT_HASH/weights.safetensors  a copy, which later trainings do not change
CHAMPION/CONTENT_HASH/promotion.json       the evaluation that decided, and the rule
CHAMPION/promotions/00000001.json          every promotion, created exactly once, before model.json is replaced
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from trainyard.errors import TrainyardError
from trainyard.files import storage, uris
from trainyard.schemas import model_artifact
from trainyard.schemas.evaluation import Baseline, Evaluation, Scores, Slice
from trainyard.schemas.promotion import Promotion, Rule
from trainyard.schemas.specs import metrics

MAX_DURATION = timedelta(minutes=10)
"""How long others wait for a promotion that has its number and has not replaced model.json. It takes seconds."""
_KEPT = frozenset({"evaluations", "promotion.json"})
"""What stays with the evaluated model, which may be the champion of another location."""
_NUMBERED = re.compile(r"(\d{8})\.json")


@dataclass(frozen=True)
class Champion:
    """The champion at a location, at one time.

    Attributes:
        uri: The location.
        weights_sha256: The sha256 of its weights, None if there is no champion yet.
        promotions: The number of the newest promotion, 0 if there is none.
    """

    uri: str
    weights_sha256: str | None
    promotions: int


@dataclass(frozen=True)
class Verdict:
    """Whether a model is promoted, and the reason."""

    promoted: bool
    why: str


class MissingValueError(TrainyardError):
    """An evaluation has no value that the rule needs.

    Args:
        reason: What is missing.
        advice: What to write instead; the rest of the message.
    """

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(reason + advice)
        self.reason = reason


def decide(evaluation: Evaluation, champion: str, champion_weights: str | None, rule: Rule) -> Verdict:
    """Decide whether the evaluated model replaces the champion. A pure function.

    Args:
        evaluation: The evaluation of the model, with the champion among its baselines.
        champion: The URI of the champion.
        champion_weights: The sha256 of the champion's weights, None if there is no champion yet.
        rule: What the model must reach.

    Raises:
        MissingValueError: The evaluation has no such metric, or no value of it.
        TrainyardError: It compares with another champion, or has no slices.
    """
    candidate = evaluation.model
    for name, bound in rule.required.items():
        value = _value(candidate, name)
        if (value - bound) * metrics.sign(name) < 0:
            return Verdict(False, f"{name} is {value:.4g}, and {bound:.4g} is required")
    for part, name, value, bound in _list_in_slices(candidate, rule.required_of_slices):
        if (value - bound) * metrics.sign(name) < 0:
            return Verdict(False, f"{name} of {part} is {value:.4g}, and {bound:.4g} is required of slices")
    _value(candidate, rule.metric)
    if champion_weights is None:
        return Verdict(True, f"there is no champion at {champion} yet")
    if champion_weights == candidate.weights_sha256:
        return Verdict(True, "it is the champion already")
    baseline = _baseline(evaluation, champion, champion_weights)
    gain, described = _gain(candidate, baseline, rule)
    if rule.slice_tolerance is not None and (worse := _find_worse_slice(candidate, baseline, rule)):
        return Verdict(False, worse)
    return Verdict(gain > rule.margin, f"{rule.metric} is {described}; it must be better by more than {rule.margin:g}")


def choose(
    evaluations: Sequence[Evaluation], champion: str, champion_weights: str | None, rule: Rule
) -> tuple[Evaluation, Verdict]:
    """Return the best of several evaluated models by the rule's metric, of those that may replace the champion.

    A pure function. If none may, the best of all is returned, with why it may not. A model without a value that the
    rule needs is rejected for that reason.

    Args:
        evaluations: The evaluations, on the same rows.
        champion: See `decide`, also for what follows.
        champion_weights: The sha256 of the champion's weights.
        rule: What a model must reach.

    Raises:
        MissingValueError: None has the values that the rule needs.
        TrainyardError: The evaluations are of several datasets or splits; or see `decide`.
    """
    rows = {(one.dataset_hash, one.split): f"{one.dataset}@{one.dataset_version}, {one.split}" for one in evaluations}
    if len(rows) > 1:
        raise TrainyardError(
            f"the evaluations are on different rows: {'; '.join(rows.values())}. Evaluate all models by one "
            "EvaluateOperator(models=[...])."
        )
    decided: list[tuple[Evaluation, Verdict, float]] = []
    missing: list[MissingValueError] = []
    for one in evaluations:
        try:
            verdict = decide(one, champion, champion_weights, rule)
            decided.append((one, verdict, _value(one.model, rule.metric)))
        except MissingValueError as error:
            missing.append(error)
    if not decided:
        raise missing[0]
    allowed = [each for each in decided if each[1].promoted] or decided
    best, verdict, value = max(allowed, key=lambda each: metrics.sign(rule.metric) * each[2])
    if len(evaluations) == 1:
        return best, verdict
    why = "; ".join([verdict.why, *(error.reason for error in missing)])
    return best, replace(verdict, why=f"the best of {len(evaluations)} models, {rule.metric} {value:.4g}: {why}")


def publish(evaluation: Evaluation, champion: Champion, rule: Rule, why: str) -> None:
    """Make the evaluated model the champion: copy its files, then replace CHAMPION/model.json in one step.

    Of the promotions that have read the same champion one succeeds: the one that creates the next number. If the model
    is the champion already, missing files are completed, and the reason of its promotion stays.

    Args:
        evaluation: The evaluation of the model.
        champion: The champion that `decide` has compared with.
        rule: What the model had to reach.
        why: The reason of the verdict.

    Raises:
        TrainyardError: The model was removed, or another promotion has replaced the champion, or is doing so.
    """
    weights = evaluation.model.weights_sha256
    origin, target = (uris.join(uri, weights[:16]) for uri in (evaluation.model.uri, champion.uri))
    names = storage.list_names(origin)
    if "model.json" not in names:
        raise TrainyardError(f"{origin} has no model.json: the evaluated model was removed. Train and evaluate again.")
    _check_completed(champion, weights)
    for name in names:
        if name not in _KEPT and not name.startswith("."):
            storage.copy(uris.join(origin, name), uris.join(target, name))
    promoted = Promotion(
        model=evaluation.model.uri, weights_sha256=weights, evaluation=evaluation.uri, rule=rule, why=why,
        promoted_at=_now(),
    )  # fmt: skip
    if champion.weights_sha256 == weights:
        record = uris.join(target, "promotion.json")
        if not storage.exists(record):
            storage.replace(record, promoted.to_json().encode())
        return
    try:
        _replace(champion, promoted)
    except FileExistsError:
        raise _replaced(evaluation, champion.uri) from None


def roll_back(uri: str, version: str) -> Promotion:
    """Make an earlier champion the champion again, as a promotion of its own.

    Args:
        uri: The location of the champion.
        version: The sha256 of the earlier champion's weights, or the beginning of it.

    Returns:
        The promotion that is recorded: the evaluation and the rule of the earlier one, and whom it replaces as reason.

    Raises:
        TrainyardError: There is no such version, it is the champion, or another promotion replaces the champion now.
    """
    champion, earlier = read_champion(uri), model_artifact.read_version(uri, version)
    if champion.weights_sha256 == earlier.weights_sha256:
        raise TrainyardError(f"{uri} has the version {earlier.folder} already.")
    try:
        before = Promotion.load(uris.join(uri, earlier.folder, "promotion.json"))
    except FileNotFoundError:
        raise TrainyardError(f"{uri} is not a champion: its version {earlier.folder} was never promoted.") from None
    _check_completed(champion, earlier.weights_sha256)
    promoted = before.model_copy(
        update={
            "weights_sha256": earlier.weights_sha256,
            "why": f"rolled back from {(champion.weights_sha256 or 'no version')[:16]}",
            "promoted_at": _now(),
        }
    )
    try:
        _replace(champion, promoted)
    except FileExistsError:
        raise TrainyardError(f"another promotion has replaced the champion at {uri}. Look at it, and repeat.") from None
    return promoted


def list_promotions(uri: str) -> list[Promotion]:
    """Return the recorded promotions of a champion, oldest first."""
    folder = uris.join(uri, "promotions")
    numbers = sorted(filter(_is_number, storage.list_names(folder)))
    return [Promotion.load(uris.join(folder, name)) for name in numbers]


def _replace(champion: Champion, promoted: Promotion) -> None:
    """Record a promotion under the next number, then replace model.json by that of its weights, which is there.

    Raises:
        FileExistsError: Another promotion has this number.
    """
    document = promoted.to_json().encode()
    folder = uris.join(champion.uri, promoted.weights_sha256[:16])
    storage.create(_numbered(champion.uri, champion.promotions + 1), document)
    storage.replace(uris.join(folder, "promotion.json"), document)
    storage.copy(uris.join(folder, "model.json"), uris.join(champion.uri, "model.json"))


def read_champion(uri: str) -> Champion:
    """Return the champion at a location.

    The number is read first: if a promotion completes in between, its number is taken, and `publish` fails.
    """
    names = storage.list_names(uris.join(uri, "promotions"))
    newest = max((int(name[:8]) for name in names if _is_number(name)), default=0)
    weights = model_artifact.read_current(uri).weights_sha256 if model_artifact.exists(uri) else None
    return Champion(uri, weights, newest)


def _check_completed(champion: Champion, weights_sha256: str) -> None:
    """Raise TrainyardError if the newest promotion, of another model, is about to replace model.json."""
    if not champion.promotions:
        return
    newest = Promotion.load(_numbered(champion.uri, champion.promotions))
    end = datetime.fromisoformat(newest.promoted_at) + MAX_DURATION
    if newest.weights_sha256 not in (champion.weights_sha256, weights_sha256) and datetime.now(UTC) < end:
        raise TrainyardError(
            f"another promotion began to replace the champion at {champion.uri} at {newest.promoted_at}. Retry after "
            f"{end.isoformat()}: by then it has completed, or was interrupted."
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _is_number(name: str) -> bool:
    return _NUMBERED.fullmatch(name) is not None


def _numbered(champion: str, number: int) -> str:
    return uris.join(champion, "promotions", f"{number:08d}.json")


def _replaced(evaluation: Evaluation, champion: str) -> TrainyardError:
    return TrainyardError(
        f"another promotion has replaced the champion at {champion} since {evaluation.uri} was written. Evaluate again."
    )


def _baseline(evaluation: Evaluation, champion: str, champion_weights: str) -> Baseline:
    versions = [each for each in evaluation.baselines if each.uri.rstrip("/") == champion.rstrip("/")]
    for baseline in versions:
        if baseline.weights_sha256 == champion_weights:
            return baseline
    if versions:
        raise _replaced(evaluation, champion)
    raise TrainyardError(
        f"{evaluation.uri} does not compare with the champion at {champion}. If baselines= of EvaluateOperator names "
        "it, there was no champion when the model was evaluated: evaluate again. If not, add it to baselines=."
    )


def _gain(candidate: Scores, baseline: Baseline, rule: Rule) -> tuple[float, str]:
    """Return how much better the model is, at least, and a description."""
    difference, sign = baseline.differences[rule.metric], metrics.sign(rule.metric)
    if difference.value is None or difference.interval is None:
        raise MissingValueError(
            f"the evaluation of {candidate.uri} has no value of metric {rule.metric!r} for both models", "."
        )
    low, high = sorted(sign * end for end in difference.interval)
    gain = sign * difference.value
    bounds = (low, high) if gain >= 0 else (-high, -low)
    described = f"{'better' if gain >= 0 else 'worse'} by {abs(gain):.4g} ({bounds[0]:.4g} to {bounds[1]:.4g})"
    return (low if rule.confident else gain), described


def _list_in_slices(scores: Scores, bounds: Mapping[str, float]) -> Iterator[tuple[str, str, float, float]]:
    """Yield slice, metric, value and bound, of slices in which the metric has a value."""
    if bounds and not scores.slices:
        raise _without_slices(scores)
    for name, bound in bounds.items():
        values = [(part, part.metrics.get(name)) for part in scores.slices]
        if all(value is None for _, value in values):
            raise MissingValueError(f"metric {name!r} has no value in any slice of {scores.uri}", ".")
        yield from ((_name(part), name, float(value), bound) for part, value in values if value is not None)


def _find_worse_slice(candidate: Scores, baseline: Baseline, rule: Rule) -> str:
    """Return why a slice decides against the model: it is worse than the champion's; "" if none is."""
    if not candidate.slices:
        raise _without_slices(candidate)
    before = {_name(part): part.metrics.get(rule.metric) for part in baseline.slices}
    tolerance = rule.slice_tolerance or 0.0
    for part in candidate.slices:
        value, other = part.metrics.get(rule.metric), before.get(_name(part))
        if value is not None and other is not None and (value - other) * metrics.sign(rule.metric) < -tolerance:
            return f"{rule.metric} of {_name(part)} is {value:.4g}, and the champion's is {other:.4g}"
    return ""


def _without_slices(scores: Scores) -> TrainyardError:
    return TrainyardError(f"the evaluation of {scores.uri} has no slices. Add slices=[...] to EvaluateOperator.")


def _name(part: Slice) -> str:
    return f"{part.column}={part.value}"


def _value(scores: Scores, name: str) -> float:
    value = scores.metrics.get(name)
    if value is None and name in scores.metrics:
        raise MissingValueError(
            f"metric {name!r} has no value in the evaluation of {scores.uri}",
            ", for example because its split has one class. Write another split= or metrics= of EvaluateOperator.",
        )
    if not isinstance(value, int | float):
        raise MissingValueError(
            f"the evaluation of {scores.uri} has no metric {name!r}",
            f"; it has {', '.join(scores.metrics)}. Add it to metrics= of EvaluateOperator.",
        )
    return float(value)
