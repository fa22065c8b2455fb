"""When a model becomes the champion."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.evaluations import beside, evaluation, scores
from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.operators import promotion
from trainyard.schemas import model_artifact
from trainyard.schemas.evaluation import Scores
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.schemas.promotion import Promotion, Rule

NEW, OLD = "n" * 64, "o" * 64
CANDIDATE = Scores(**scores("model", NEW, accuracy=0.9, log_loss=0.4, confusion_matrix=[[1]]))


@pytest.mark.parametrize(
    ("difference", "rule", "promoted"),
    [
        ((0.01, 0.02, 0.03), Rule(metric="accuracy"), True),
        ((-0.01, 0.02, 0.05), Rule(metric="accuracy"), False),
        ((-0.01, 0.02, 0.05), Rule(metric="accuracy", confident=False), True),
        ((0.0, 0.0, 0.0), Rule(metric="accuracy"), False),
        ((0.01, 0.02, 0.03), Rule(metric="accuracy", margin=0.015), False),
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


def test_the_first_model_is_promoted_if_it_is_good_enough() -> None:
    candidate = evaluation(CANDIDATE)
    assert promotion.decide(candidate, "champion", None, Rule(metric="accuracy")).promoted
    refused = promotion.decide(candidate, "champion", None, Rule(metric="accuracy", required={"accuracy": 0.95}))
    assert not refused.promoted
    assert refused.why == "accuracy is 0.9, and 0.95 is required"


def test_a_repeated_promotion_changes_nothing() -> None:
    candidate = evaluation(CANDIDATE, beside("champion", OLD, accuracy=(0.1, 0.2, 0.3)))
    assert promotion.decide(candidate, "champion", NEW, Rule(metric="accuracy")).promoted


def test_the_verdict_has_the_reason() -> None:
    candidate = evaluation(CANDIDATE, beside("champion", OLD, log_loss=(-0.03, -0.02, 0.01)))
    verdict = promotion.decide(candidate, "champion", OLD, Rule(metric="log_loss"))
    assert verdict.why == "log_loss is better by 0.02 (-0.01 to 0.03); it must be better by more than 0"


@pytest.mark.parametrize(
    ("baselines", "champion_weights", "metric", "message"),
    [
        ((), OLD, "accuracy", r"does not compare with the champion at champion\. Add .* to baselines="),
        (
            (beside("champion", OLD),),
            "x" * 64,
            "accuracy",
            r"another promotion has replaced meanwhile\. Evaluate again",
        ),
        ((), OLD, "f1", r"has no metric 'f1'; it has accuracy, log_loss, confusion_matrix\. Add it"),
    ],
)
def test_an_evaluation_that_cannot_decide_is_refused(baselines, champion_weights, metric, message) -> None:
    with pytest.raises(TrainyardError, match=message):
        promotion.decide(evaluation(CANDIDATE, *baselines), "champion", champion_weights, Rule(metric=metric))


def write_model(model: Path, weights: bytes) -> ModelArtifact:
    """Write a model artifact with these bytes as weights."""
    digest = weights.hex().ljust(64, "0")
    artifact = ModelArtifact(
        recipe="a:b", recipe_params={}, inputs=(), label=None, normalization={}, dataset="d", dataset_hash="h",
        weights=f"{digest[:16]}/weights.safetensors", weights_sha256=digest, dataset_version=1, metrics={}, epochs=1,
        workers=1, seconds=1.0, device="cpu", application="", written_at="", versions={},
    )  # fmt: skip
    storage.replace(storage.join(str(model), artifact.weights), weights)
    for name in (f"{digest[:16]}/model.json", "model.json"):
        storage.replace(storage.join(str(model), name), artifact.to_json().encode())
    return artifact


def test_the_champion_is_a_copy_of_the_model_that_was_evaluated(tmp_path: Path) -> None:
    model, champion = tmp_path / "model", str(tmp_path / "champion")
    good = write_model(model, b"good")
    candidate = evaluation(Scores(**scores(str(model), good.weights_sha256, accuracy=0.9)))
    storage.replace(storage.join(str(model), good.weights_sha256[:16], "mlflow/MLmodel"), b"another format")
    write_model(model, b"newer")
    promotion.publish(candidate, champion, Rule(metric="accuracy"), "it was good")
    assert model_artifact.read_current(champion) == good
    assert promotion.champion_weights(champion) == good.weights_sha256
    assert storage.read(storage.join(champion, good.weights)) == b"good"
    assert storage.read(storage.join(champion, good.weights_sha256[:16], "mlflow/MLmodel")) == b"another format"
    stored = Promotion.load(storage.join(champion, good.weights_sha256[:16], "promotion.json"))
    assert (stored.why, stored.evaluation) == ("it was good", candidate.uri)


def test_there_is_no_champion_before_the_first() -> None:
    assert promotion.champion_weights("/nowhere/champion") is None
