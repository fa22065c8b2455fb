"""When a model becomes the champion."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.evaluations import beside, evaluation, scores, write_model
from trainyard.errors import TrainyardError
from trainyard.files import storage, uris
from trainyard.models import promotion
from trainyard.operators import PromoteOperator
from trainyard.schemas import model_artifact
from trainyard.schemas.evaluation import Baseline, Difference, Evaluation, Scores, Slice
from trainyard.schemas.promotion import Promotion, Rule

NEW, OLD = "e" * 64, "0" * 64
CANDIDATE = Scores(**scores("model", NEW, accuracy=0.9, log_loss=0.4, confusion_matrix=[[1]]))


@pytest.mark.parametrize(
    ("difference", "rule", "promoted"),
    [
        ((0.01, 0.02, 0.03), Rule(metric="accuracy"), True),
        ((-0.01, 0.02, 0.05), Rule(metric="accuracy"), False),
        ((-0.01, 0.02, 0.05), Rule(metric="accuracy", confident=False), True),
        ((0.0, 0.0, 0.0), Rule(metric="accuracy"), False),
        ((0.01, 0.02, 0.03), Rule(metric="accuracy", margin=0.015), False),
        ((0.01, 0.02, 0.03), Rule(metric="accuracy", margin=0.01), False),
        ((0.01, 0.02, 0.03), Rule(metric="accuracy", margin=0.03, confident=False), False),
        ((-0.01, 0.0, 0.01), Rule(metric="accuracy", margin=-0.02), True),
        ((-0.03, -0.02, -0.01), Rule(metric="log_loss"), True),
        ((0.01, 0.02, 0.03), Rule(metric="log_loss"), False),
        ((0.01, 0.02, 0.03), Rule(metric="accuracy", required={"accuracy": 0.9, "log_loss": 0.4}), True),
        ((0.01, 0.02, 0.03), Rule(metric="accuracy", required={"log_loss": 0.3}), False),
    ],
)
def test_a_model_that_is_better_by_the_rule_is_promoted(
    difference: tuple[float, float, float], rule: Rule, promoted: bool
) -> None:
    candidate = evaluation(CANDIDATE, beside("champion", OLD, **{rule.metric: difference}))
    assert promotion.decide(candidate, "champion", OLD, rule).promoted is promoted


def with_slices(values: list[float | None], champion: list[float | None], metric: str) -> Evaluation:
    """Return the evaluation of a model that is better in all, with the values of a metric in three countries."""

    def slices(of_model: list[float | None]) -> tuple[Slice, ...]:
        return tuple(
            Slice(column="country", value=country, rows=10, metrics={metric: value}, intervals={})
            for country, value in zip(("at", "de", "fr"), of_model, strict=True)
        )

    sign = -1 if metric == "log_loss" else 1
    baseline = beside("champion", OLD, **{metric: (0.01 * sign, 0.02 * sign, 0.03 * sign)})
    return evaluation(
        CANDIDATE.model_copy(update={"slices": slices(values)}),
        baseline.model_copy(update={"slices": slices(champion)}),
    )


@pytest.mark.parametrize(
    ("metric", "values", "champion", "tolerance", "promoted"),
    [
        ("accuracy", [0.9, 0.8, 0.7], [0.9, 0.7, 0.7], 0.0, True),
        ("accuracy", [0.9, 0.8, 0.7], [0.9, 0.7, 0.71], 0.0, False),
        ("accuracy", [0.9, 0.8, 0.7], [0.9, 0.7, 0.71], 0.02, True),
        ("accuracy", [0.9, 0.8, 0.7], [0.9, 0.7, 0.71], None, True),
        ("accuracy", [0.9, None, 0.7], [0.9, 0.9, None], 0.0, True),
        ("log_loss", [0.4, 0.3, 0.2], [0.4, 0.3, 0.1], 0.0, False),
        ("log_loss", [0.4, 0.3, 0.1], [0.4, 0.3, 0.2], 0.0, True),
    ],
)
def test_a_model_that_is_worse_in_a_slice_is_rejected(
    metric: str, values: list[float | None], champion: list[float | None], tolerance: float | None, promoted: bool
) -> None:
    candidate = with_slices(values, champion, metric)
    verdict = promotion.decide(candidate, "champion", OLD, Rule(metric=metric, slice_tolerance=tolerance))
    assert verdict.promoted is promoted
    assert promoted or verdict.why.startswith(f"{metric} of country=fr is {values[2]}")


@pytest.mark.parametrize(("champion", "weights"), [("champion", OLD), ("none", None)])
def test_a_metric_must_be_reached_in_each_slice_also_without_a_champion(champion: str, weights: str | None) -> None:
    candidate = with_slices([0.9, None, 0.7], [0.5, 0.5, 0.5], "accuracy")
    rule = Rule(metric="accuracy", required_of_slices={"accuracy": 0.75})
    refused = promotion.decide(candidate, champion, weights, rule)
    assert refused == promotion.Verdict(False, "accuracy of country=fr is 0.7, and 0.75 is required of slices")
    reached = Rule(metric="accuracy", required_of_slices={"accuracy": 0.7})
    assert promotion.decide(candidate, champion, weights, reached).promoted


def of_several(gains: dict[str, float], **fields: Any) -> list[Evaluation]:
    """Return evaluations of models by name, each better than the champion by some accuracy."""
    models = [Scores(**scores(name, 4 * name.encode().hex(), accuracy=0.8 + gain)) for name, gain in gains.items()]
    return [
        evaluation(model, beside("champion", OLD, accuracy=(gain - 0.01, gain, gain + 0.01)), **fields)
        for model, gain in zip(models, gains.values(), strict=True)
    ]


@pytest.mark.parametrize(
    ("gains", "rule", "best", "promoted"),
    [
        ({"a": 0.02, "b": 0.05, "c": 0.03}, {}, "b", True),
        ({"a": 0.02, "b": 0.005}, {}, "a", True),
        ({"a": -0.02, "b": 0.005}, {}, "b", False),
        ({"a": 0.02, "b": 0.05}, {"required": {"accuracy": 0.9}}, "b", False),
    ],
)
def test_of_several_models_the_best_is_promoted_of_those_that_fulfil_the_rule(
    gains: dict[str, float], rule: dict[str, Any], best: str, promoted: bool
) -> None:
    chosen, verdict = promotion.choose(of_several(gains), "champion", OLD, Rule(metric="accuracy", **rule))
    assert (chosen.model.uri, verdict.promoted) == (best, promoted)
    assert verdict.why.startswith(f"the best of {len(gains)} models, accuracy {0.8 + gains[best]:.4g}: accuracy is ")


def test_a_model_that_is_better_but_worse_in_a_slice_leaves_the_promotion_to_another_one() -> None:
    uneven, even = (with_slices(values, [0.9, 0.8, 0.7], "accuracy") for values in ([1, 1, 0.6], [0.9, 0.8, 0.8]))
    even = even.model_copy(
        update={"model": even.model.model_copy(update={"uri": "even", "metrics": {"accuracy": 0.8}})}
    )
    rule = Rule(metric="accuracy", slice_tolerance=0.0)
    chosen, verdict = promotion.choose([uneven, even], "champion", OLD, rule)
    assert (chosen.model.uri, verdict.promoted) == ("even", True)


def test_of_several_models_the_one_with_the_smallest_error_is_promoted() -> None:
    values = {"a": 0.3, "b": 0.1, "c": 0.2}
    evaluations = [evaluation(Scores(**scores(name, NEW, mae=value))) for name, value in values.items()]
    assert promotion.choose(evaluations, "none", None, Rule(metric="mae"))[0].model.uri == "b"


@pytest.mark.parametrize(
    ("metrics", "reason"),
    [
        ({"accuracy": None}, "metric 'accuracy' has no value in the evaluation of without"),
        ({"f1": 0.9}, "the evaluation of without has no metric 'accuracy'"),
    ],
)
@pytest.mark.parametrize("rule", [{}, {"required": {"accuracy": 0.5}}])
def test_of_several_models_one_without_a_value_of_the_metric_is_rejected(
    metrics: dict[str, Any], reason: str, rule: dict[str, Any]
) -> None:
    without, good = of_several({"without": 0.05, "good": 0.02})
    without = without.model_copy(update={"model": without.model.model_copy(update={"metrics": metrics})})
    for several in ([without, good], [good, without]):
        chosen, verdict = promotion.choose(several, "champion", OLD, Rule(metric="accuracy", **rule))
        assert (chosen.model.uri, verdict.promoted) == ("good", True)
        assert verdict.why.startswith("the best of 2 models, accuracy 0.82: ") and verdict.why.endswith(f"; {reason}")
    with pytest.raises(TrainyardError, match=r"the evaluation of without[, ].* EvaluateOperator\.$"):
        promotion.choose([without, without], "champion", OLD, Rule(metric="accuracy", **rule))


def test_of_several_models_one_that_cannot_be_compared_with_the_champion_is_rejected() -> None:
    good, without = of_several({"good": 0.02, "without": 0.05})
    other = Baseline(**scores("champion", OLD), differences={"accuracy": Difference(value=0.1, interval=None)})
    without = without.model_copy(update={"baselines": (other,)})
    chosen, verdict = promotion.choose([good, without], "champion", OLD, Rule(metric="accuracy"))
    assert (chosen.model.uri, verdict.promoted) == ("good", True)
    assert verdict.why.endswith("; the evaluation of without has no value of metric 'accuracy' for both models")


def test_models_that_were_evaluated_on_different_rows_are_not_compared() -> None:
    evaluations = of_several({"a": 0.02}) + of_several({"b": 0.05}, split="validation")
    with pytest.raises(TrainyardError, match=r"different rows: d@1, test; d@1, validation\. Evaluate all .* by one"):
        promotion.choose(evaluations, "champion", OLD, Rule(metric="accuracy"))


@pytest.mark.parametrize("rule", [{"slice_tolerance": 0.0}, {"required_of_slices": {"accuracy": 0.5}}])
def test_a_rule_of_slices_needs_an_evaluation_with_slices(rule: dict[str, Any]) -> None:
    candidate = evaluation(CANDIDATE, beside("champion", OLD, accuracy=(0.01, 0.02, 0.03)))
    with pytest.raises(TrainyardError, match=r"has no slices\. Add slices=\[\.\.\.\] to EvaluateOperator"):
        promotion.decide(candidate, "champion", OLD, Rule(metric="accuracy", **rule))


@pytest.mark.parametrize(("difference", "promoted"), [((-0.3, -0.2, -0.1), True), ((0.1, 0.2, 0.3), False)])
def test_the_metric_of_a_head_may_decide(difference: tuple[float, float, float], promoted: bool) -> None:
    """Less of an error is better, whichever head has it."""
    of_heads = Scores(**scores("model", NEW, **{"kind/accuracy": 0.9, "size/rmse": 0.4}))
    rule = Rule(metric="size/rmse", required={"kind/accuracy": 0.8})
    candidate = evaluation(of_heads, beside("champion", OLD, **{"size/rmse": difference}))
    assert promotion.decide(candidate, "champion", OLD, rule).promoted is promoted


def test_the_first_model_is_promoted_if_it_is_good_enough() -> None:
    candidate = evaluation(CANDIDATE)
    first = promotion.decide(candidate, "champion", None, Rule(metric="accuracy"))
    assert first == promotion.Verdict(True, "there is no champion at champion yet")
    refused = promotion.decide(candidate, "champion", None, Rule(metric="accuracy", required={"accuracy": 0.95}))
    assert not refused.promoted
    assert refused.why == "accuracy is 0.9, and 0.95 is required"


def test_a_repeated_promotion_changes_nothing() -> None:
    candidate = evaluation(CANDIDATE, beside("champion", OLD, accuracy=(0.1, 0.2, 0.3)))
    verdict = promotion.decide(candidate, "champion", NEW, Rule(metric="accuracy"))
    assert verdict == promotion.Verdict(True, "it is the champion already")


def test_a_slash_at_the_end_of_a_location_does_not_matter() -> None:
    for champion, other in (("/s/champion/", "/s/champion"), ("/s/champion", "/s/champion/")):
        candidate = evaluation(CANDIDATE, beside(other, OLD, accuracy=(0.1, 0.2, 0.3)))
        assert promotion.decide(candidate, champion, OLD, Rule(metric="accuracy")).promoted


@pytest.mark.parametrize("missing", ["value", "interval"])
def test_a_difference_without_a_value_or_an_interval_cannot_decide(missing: str) -> None:
    baseline = beside("champion", OLD, accuracy=(0.1, 0.2, 0.3))
    differences = {"accuracy": baseline.differences["accuracy"].model_copy(update={missing: None})}
    candidate = evaluation(CANDIDATE, baseline.model_copy(update={"differences": differences}))
    with pytest.raises(
        TrainyardError, match=r"^the evaluation of model has no value of metric 'accuracy' for both models"
    ):
        promotion.decide(candidate, "champion", OLD, Rule(metric="accuracy"))


def test_the_verdict_has_the_reason() -> None:
    candidate = evaluation(CANDIDATE, beside("champion", OLD, log_loss=(-0.03, -0.02, 0.01)))
    verdict = promotion.decide(candidate, "champion", OLD, Rule(metric="log_loss"))
    assert verdict.why == "log_loss is better by 0.02 (-0.01 to 0.03); it must be better by more than 0"


def test_the_reason_says_how_much_worse_a_model_is() -> None:
    candidate = evaluation(CANDIDATE, beside("champion", OLD, accuracy=(-0.03, -0.02, 0.01)))
    verdict = promotion.decide(candidate, "champion", OLD, Rule(metric="accuracy"))
    assert verdict.why == "accuracy is worse by 0.02 (-0.01 to 0.03); it must be better by more than 0"


def test_a_metric_without_a_value_is_not_called_absent() -> None:
    candidate = evaluation(CANDIDATE.model_copy(update={"metrics": {"accuracy": 0.9, "auroc": None}}))
    with pytest.raises(TrainyardError, match=r"^metric 'auroc' has no value in the evaluation of .*split="):
        promotion.decide(candidate, "champion", None, Rule(metric="auroc"))


@pytest.mark.parametrize(
    ("baselines", "champion_weights", "metric", "message"),
    [
        (
            (),
            OLD,
            "accuracy",
            r"at champion\. If baselines= of EvaluateOperator names it, there was no champion when the model was "
            r"evaluated: evaluate again\. If not, add it to baselines=\.$",
        ),
        (
            (beside("champion", OLD),),
            "x" * 64,
            "accuracy",
            r"^another promotion has replaced the champion at champion since model/.* was written\. Evaluate again\.$",
        ),
        (
            (),
            OLD,
            "f1",
            r"no metric 'f1'; it has accuracy, log_loss, confusion_matrix\. Add it to metrics= of EvaluateOperator\.$",
        ),
    ],
)
def test_an_evaluation_that_cannot_decide_is_refused(baselines, champion_weights, metric, message) -> None:
    with pytest.raises(TrainyardError, match=message):
        promotion.decide(evaluation(CANDIDATE, *baselines), "champion", champion_weights, Rule(metric=metric))


def test_the_champion_is_a_copy_of_the_model_that_was_evaluated(tmp_path: Path) -> None:
    model, champion = tmp_path / "model", str(tmp_path / "champion")
    good = write_model(model, b"good")
    candidate = evaluation(Scores(**scores(str(model), good.weights_sha256, accuracy=0.9)))
    for name in ("mlflow/MLmodel", "evaluations/test.json", ".hidden"):
        storage.replace(uris.join(str(model), good.weights_sha256[:16], name), b"another format")
    write_model(model, b"newer")
    promotion.publish(candidate, promotion.read_champion(champion), Rule(metric="accuracy"), "it was good")
    assert model_artifact.read_current(champion) == good
    assert promotion.read_champion(champion) == promotion.Champion(champion, good.weights_sha256, 1)
    assert storage.read(uris.join(champion, good.weights[0].path)) == b"good"
    assert storage.read(uris.join(champion, good.weights_sha256[:16], "mlflow/MLmodel")) == b"another format"
    stored = Promotion.load(uris.join(champion, good.weights_sha256[:16], "promotion.json"))
    assert (stored.why, stored.evaluation) == ("it was good", candidate.uri)
    assert stored.promoted_at.endswith("+00:00")
    assert {path.name for path in Path(champion, good.weights_sha256[:16]).iterdir()} == {
        "mlflow", "model.json", "promotion.json", "weights.safetensors",
    }  # fmt: skip


def test_a_model_that_was_removed_since_its_evaluation_does_not_become_the_champion(tmp_path: Path) -> None:
    champion = str(tmp_path / "champion")
    with pytest.raises(TrainyardError, match="the evaluated model was removed"):
        promotion.publish(
            evaluation(CANDIDATE), promotion.read_champion(champion), Rule(metric="accuracy"), "it was good"
        )
    assert not storage.exists(champion)


def test_there_is_no_champion_before_the_first() -> None:
    assert promotion.read_champion("/nowhere/champion") == promotion.Champion("/nowhere/champion", None, 0)


def written(model: Path, weights: bytes) -> Evaluation:
    """The evaluation of a model that is written now."""
    artifact = write_model(model, weights)
    return evaluation(Scores(**scores(str(model), artifact.weights_sha256, accuracy=0.9)))


@pytest.mark.parametrize("is_first", [True, False], ids=["first champion", "later champion"])
def test_of_two_promotions_that_saw_the_same_champion_one_fails(tmp_path: Path, is_first: bool) -> None:
    champion, rule = str(tmp_path / "champion"), Rule(metric="accuracy")
    if not is_first:  # also a champion of an earlier release, without numbered promotions
        write_model(tmp_path / "champion", b"old")
    better, worse = written(tmp_path / "c", b"better"), written(tmp_path / "d", b"worse")
    seen = promotion.read_champion(champion)
    promotion.publish(better, seen, rule, "it is better")
    with pytest.raises(TrainyardError, match=r"^another promotion has replaced the champion at .*/champion since "):
        promotion.publish(worse, seen, rule, "it is better")
    assert promotion.read_champion(champion) == promotion.Champion(champion, better.model.weights_sha256, 1)
    assert not storage.exists(uris.join(champion, worse.model.weights_sha256[:16], "promotion.json"))


def test_a_model_may_become_the_champion_again(tmp_path: Path) -> None:
    champion, rule = str(tmp_path / "champion"), Rule(metric="accuracy")
    one, other = written(tmp_path / "a", b"one"), written(tmp_path / "b", b"other")
    for number, candidate in enumerate((one, other, one), start=1):
        promotion.publish(candidate, promotion.read_champion(champion), rule, f"reason {number}")
        weights = candidate.model.weights_sha256
        assert promotion.read_champion(champion) == promotion.Champion(champion, weights, number)
        stored = Promotion.load(uris.join(champion, weights[:16], "promotion.json"))
        assert (stored.why, stored.weights_sha256) == (f"reason {number}", weights)
    assert storage.list_names(f"{champion}/promotions") == ["00000001.json", "00000002.json", "00000003.json"]


def interrupt_promotion(candidate: Evaluation, champion: str) -> None:
    """Promote a model, and undo the last step."""
    before = storage.read(f"{champion}/model.json")
    promotion.publish(candidate, promotion.read_champion(champion), Rule(metric="accuracy"), "it is better")
    storage.replace(f"{champion}/model.json", before)


def test_the_next_attempt_completes_a_promotion_that_was_interrupted(tmp_path: Path) -> None:
    write_model(tmp_path / "champion", b"old")
    champion, candidate = str(tmp_path / "champion"), written(tmp_path / "c", b"new")
    interrupt_promotion(candidate, champion)
    promotion.publish(candidate, promotion.read_champion(champion), Rule(metric="accuracy"), "it is better")
    assert promotion.read_champion(champion).weights_sha256 == candidate.model.weights_sha256


def test_a_promotion_that_has_not_ended_holds_others_back_for_some_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = write_model(tmp_path / "champion", b"old")
    champion, other = str(tmp_path / "champion"), written(tmp_path / "d", b"other")
    interrupt_promotion(written(tmp_path / "c", b"new"), champion)
    with pytest.raises(TrainyardError, match=r"^another promotion began to replace the champion at .* Retry after "):
        promotion.publish(other, promotion.read_champion(champion), Rule(metric="accuracy"), "it is better")
    assert promotion.read_champion(champion).weights_sha256 == old.weights_sha256
    monkeypatch.setattr(promotion, "MAX_DURATION", timedelta(0))
    promotion.publish(other, promotion.read_champion(champion), Rule(metric="accuracy"), "it is better")
    assert promotion.read_champion(champion).weights_sha256 == other.model.weights_sha256


def test_a_repeated_promotion_keeps_the_reason_and_completes_missing_files(tmp_path: Path) -> None:
    champion, candidate = str(tmp_path / "champion"), written(tmp_path / "c", b"new")
    folder = uris.join(champion, candidate.model.weights_sha256[:16])
    promotion.publish(candidate, promotion.read_champion(champion), Rule(metric="accuracy"), "it is better")
    first = storage.read(f"{folder}/promotion.json")
    storage.remove(f"{folder}/weights.safetensors")
    promotion.publish(candidate, promotion.read_champion(champion), Rule(metric="accuracy"), "it is the champion")
    assert storage.read(f"{folder}/weights.safetensors") == b"new"
    assert storage.read(f"{folder}/promotion.json") == first
    assert promotion.read_champion(champion).promotions == 1


def test_a_champion_without_a_reason_gets_one(tmp_path: Path) -> None:
    candidate = written(tmp_path / "champion", b"new")
    champion = promotion.read_champion(str(tmp_path / "champion"))
    promotion.publish(candidate, champion, Rule(metric="accuracy"), "it is the champion already")
    stored = Promotion.load(uris.join(champion.uri, candidate.model.weights_sha256[:16], "promotion.json"))
    assert stored.why == "it is the champion already"


def test_the_champion_of_another_location_keeps_its_own_reason(tmp_path: Path) -> None:
    candidate, (first, second) = written(tmp_path / "c", b"new"), (f"{tmp_path}/staging", f"{tmp_path}/production")
    promotion.publish(candidate, promotion.read_champion(first), Rule(metric="accuracy"), "reason of staging")
    staged = evaluation(candidate.model.model_copy(update={"uri": first}))
    for why in ("reason of production", "it is the champion already"):
        promotion.publish(staged, promotion.read_champion(second), Rule(metric="accuracy"), why)
        stored = Promotion.load(uris.join(second, candidate.model.weights_sha256[:16], "promotion.json"))
        assert stored.why == "reason of production"


def test_the_champion_is_found_among_several_of_its_versions() -> None:
    older, current = (beside("champion", digit * 64, accuracy=(0.01, 0.02, 0.03)) for digit in "01")
    for baselines in ((older, current), (current, older)):
        verdict = promotion.decide(evaluation(CANDIDATE, *baselines), "champion", "1" * 64, Rule(metric="accuracy"))
        assert verdict.promoted


def test_a_champion_whose_document_was_removed_is_restored_by_a_rollback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promotion, "MAX_DURATION", timedelta(0))  # a promotion that runs would complete it
    champion = str(tmp_path / "champion")
    for weights in (b"first", b"second"):
        promotion.publish(
            written(tmp_path / "m", weights), promotion.read_champion(champion), Rule(metric="accuracy"), "better"
        )
    storage.remove(f"{champion}/model.json")
    promoted = promotion.roll_back(champion, b"first".hex())
    assert promoted.why == "rolled back from no version"
    assert promotion.read_champion(champion).weights_sha256 == promoted.weights_sha256


def test_the_name_of_a_champion_has_no_version() -> None:
    with pytest.raises(TrainyardError, match=r"champion='c@1a2b': '@1a2b' at its end names a version"):
        PromoteOperator(task_id="promote", evaluation="e", champion="c@1a2b", metric="accuracy")
