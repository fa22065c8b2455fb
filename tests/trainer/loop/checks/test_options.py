"""What of a recipe and its options is refused before the first step, and what the defaults are."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassConfusionMatrix

from tests.trainer import datasets
from tests.trainer.recipes import Tokens, linear
from trainyard.errors import TrainyardError
from trainyard.schemas.datasets import manifest as manifests
from trainyard.schemas.datasets.manifest import Statistics
from trainyard.trainer.data.loader import split_batch
from trainyard.trainer.data.mixture import Portion
from trainyard.trainer.data.order import Order, _split_evenly
from trainyard.trainer.loop.checks.labels import check_labels
from trainyard.trainer.loop.checks.options import build_normalization, count_smallest_micro_batch, parse_options
from trainyard.trainer.loop.fit import FitResult, fit
from trainyard.trainer.model.artifacts.trained_model import load_model
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.verification import check


class Variant:
    """The fields of the recipe `varied` that a test sets."""

    fields: ClassVar[dict[str, Any]] = {}


@pytest.fixture(autouse=True)
def keep_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build models in this module, in which a test has set the fields, and not in one that is imported anew."""
    monkeypatch.setattr(check, "import_anew", lambda _: nullcontext())


def varied() -> Recipe:
    return replace(linear(), **Variant.fields)


def test_an_unknown_option_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(TrainyardError, match=r"^fit: 'epoch' is not a known option; the nearest one is 'epochs'\.$"):
        parse_options({"epoch": 2})


def train(folder: Path, rows: dict[str, Any] | None = None, options: dict[str, Any] | None = None) -> FitResult:
    splits = {"train": rows or datasets.blobs(100), "validation": datasets.blobs(40, seed=1)}
    if rows:
        del splits["validation"]
    uri = datasets.write(folder / "dataset", splits)
    defaults: dict[str, Any] = {"epochs": 2, "batch_size": 25}
    return fit(f"{__name__}:varied", dataset=uri, model=str(folder / "model"), **(defaults | (options or {})))


class Scaled(nn.Linear):
    """A layer with a state that is no tensor."""

    def get_extra_state(self) -> dict[str, float]:
        return {"scale": 5.0}

    def set_extra_state(self, state: Any) -> None:
        """Ignore it."""


def penalize(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Return a loss with a gradient penalty, which needs gradients in validation too."""
    x = batch["x"].clone().requires_grad_(True)
    output = model(batch | {"x": x})
    (gradient,) = torch.autograd.grad(output.sum(), x, create_graph=True)
    return nn.functional.cross_entropy(output, batch["label"]) + gradient.square().mean()


def penalize_with_gradients(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    with torch.enable_grad():
        return penalize(model, batch)


class Centers(nn.Module):
    """A loss with parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.centers = nn.Parameter(torch.zeros(3))

    def forward(self, output: Tensor, label: Tensor) -> Tensor:
        return nn.functional.cross_entropy(output + self.centers, label)


class Correct(Metric):
    """A metric that leaves open whether higher is better, as those of torchmetrics do by default."""

    def __init__(self) -> None:
        super().__init__()
        self.add_state("rows", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, output: Tensor, label: Tensor) -> None:
        self.rows += (output.argmax(1) == label).sum()

    def compute(self) -> Tensor:
        return self.rows


class Reshaping(nn.Linear):
    """A layer with a shape of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.reshape(7, 2))


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {}, {"monitor": "acuracy"},
        "^monitor='acuracy' is not a metric that the best epoch can be chosen by; these are accuracy, loss, valid",
    ),
    ({}, {"monitor": "rows_per_second"}, "^monitor='rows_per_second' is not a metric that the best epoch can"),
    (
        {"metrics": {"own": Correct()}}, {"monitor": "own"},
        "^monitor='own': the metric does not say whether higher is better .*; write monitor_mode='min' or 'max'",
    ),
    ({"model": Scaled(8, 3)}, {}, "'_extra_state' in the state of the model is no tensor, and would not be saved"),
    ({"loss": Centers()}, {}, "loss= has parameters, which would neither be trained nor saved"),
    ({"loss": partial(Centers())}, {}, "loss= has parameters, which would neither be trained nor saved"),
    ({"loss": nn.CrossEntropyLoss(reduction="none")}, {}, r"the recipe's loss has shape \[25\]; return one number"),
    ({"loss": nn.CrossEntropyLoss(reduction="sum")}, {}, r"CrossEntropyLoss\(reduction='sum'\) is not a mean over"),
    ({"loss": partial(cross_entropy, reduction="sum")}, {}, r"cross_entropy\(reduction='sum'\) is not a mean over"),
    ({"optimizer": torch.optim.LBFGS}, {}, "^optimizer=LBFGS computes the loss several times in a step"),
    (
        {"model": Tokens(), "optimizer": lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9)}, {},
        r"^optimizer=SGD\(momentum=...\) cannot process the sparse gradients of 'model.embed' \(EmbeddingBag\)",
    ),
    (
        {"schedule": lambda optimizer, _: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)}, {},
        "^schedule=ReduceLROnPlateau depends on a metric",
    ),
    ({"freeze": ["weight", "bias"], "model": nn.Linear(8, 3)}, {}, "^the model has no parameters to train: all are fr"),
    ({"step": penalize}, {}, r"^the recipe's step= computes gradients, but validation .*enable_grad"),
    (
        {"model": nn.Linear(3, 3)}, {},
        r"^the recipe's model and loss do not fit the shapes of the data: .*\(25x8 and 3x3\)\. The model gets 'x' of "
        r"shape \[rows, 8\]\. Let its layers",
    ),
    ({"model": Reshaping(8, 3)}, {}, r"shapes of the data at \S*test_options.py:\d+: shape '\[7, 2\]' is"),
    ({"model": nn.Linear(8, 3).double()}, {}, r"the parameter 'model.weight' is float64, .* call model.float\(\)"),
    ({"model": nn.Linear(8, 3).bfloat16()}, {}, "the parameter 'model.weight' is bfloat16, .*precision='bfloat16'"),
    ({"model": nn.Sequential(nn.LazyBatchNorm1d(), nn.Linear(8, 3))}, {}, "'0.weight' of the model has no shape yet"),
    (
        {"metrics": {"both": MetricCollection([MulticlassAccuracy(3)])}}, {},
        "metric 'both' is a MetricCollection; an epoch has one number of each metric",
    ),
    (
        {"metrics": {"matrix": MulticlassConfusionMatrix(3)}}, {},
        r"^metric 'matrix' of the recipe is a tensor of shape \[3, 3\]; an epoch has one number of each metric",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "options", "message"), REFUSED)
def test_what_cannot_be_trained_or_saved_is_refused(
    tmp_path: Path, fields: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    Variant.fields = fields
    with pytest.raises(TrainyardError, match=message):
        train(tmp_path, options=options)


def test_a_lazy_model_is_refused_where_it_would_not_resume(tmp_path: Path) -> None:
    Variant.fields = {"model": nn.LazyLinear(3)}
    with pytest.raises(TrainyardError, match=r"'weight' of the model has no shape yet .* Call the model with one row"):
        train(tmp_path / "a", options={"checkpoints": str(tmp_path / "checkpoints")})
    Variant.fields = {"model": nn.LazyLinear(3)}
    assert len(train(tmp_path / "b").history.epochs) == 2


class Casting(nn.Linear):
    """A layer that computes in its own type."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(self.weight.dtype)).float()


def test_a_model_may_compute_in_a_type_of_its_own(tmp_path: Path) -> None:
    Variant.fields = {"model": Casting(8, 3).double()}
    assert len(train(tmp_path).history.epochs) == 2


def test_a_step_may_compute_gradients_in_validation(tmp_path: Path) -> None:
    Variant.fields = {"step": penalize_with_gradients}
    assert len(train(tmp_path).history.epochs) == 2


def test_a_metric_of_the_recipe_is_not_monitored_without_a_validation_split(tmp_path: Path) -> None:
    Variant.fields = {}
    message = "; these are loss. .* There is no validation split, so that the recipe's metrics are"
    with pytest.raises(TrainyardError, match=message):
        train(tmp_path, datasets.blobs(100), {"monitor": "accuracy"})


@pytest.mark.parametrize("name", ["loss", "validation_loss", "rows_per_second"])
def test_a_metric_that_each_epoch_has_already_is_refused(name: str) -> None:
    with pytest.raises(TrainyardError, match=f"^Recipe: metrics= has '{name}', which each epoch has already"):
        replace(linear(), metrics={name: MulticlassAccuracy(3)})


@pytest.mark.parametrize(("mode", "best"), [(None, max), ("max", max), ("min", min)])
def test_higher_is_better_where_the_metric_says_so(tmp_path: Path, mode: str | None, best: Any) -> None:
    Variant.fields = {"optimizer": lambda parameters: torch.optim.SGD(parameters, 0.003)}
    fitted = train(tmp_path, options={"monitor": "accuracy", "monitor_mode": mode, "epochs": 4})
    accuracies = [epoch["accuracy"] for epoch in fitted.history.epochs]
    assert len(set(accuracies)) > 1
    assert fitted.metrics["accuracy"] == best(accuracies)


@pytest.mark.parametrize(("mode", "best"), [("max", max), ("min", min)])
def test_a_metric_that_leaves_open_whether_higher_is_better_has_the_mode_of_the_options(
    tmp_path: Path, mode: str, best: Any
) -> None:
    Variant.fields = {
        "optimizer": lambda parameters: torch.optim.SGD(parameters, 0.003),
        "metrics": {"own": Correct()},
    }
    fitted = train(tmp_path, options={"monitor": "own", "monitor_mode": mode, "epochs": 4})
    assert fitted.metrics["own"] == best(epoch["own"] for epoch in fitted.history.epochs)


def test_the_label_may_be_a_feature(tmp_path: Path) -> None:
    Variant.fields = {"model": nn.Linear(8, 8), "label": "x", "loss": nn.MSELoss(), "metrics": {}, "classes": None}
    assert train(tmp_path).metrics["validation_loss"] > 0


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.int32])
def test_classes_may_be_short_integers(tmp_path: Path, kind: type[np.generic]) -> None:
    Variant.fields = {}
    rows = datasets.blobs(100)
    assert train(tmp_path, rows | {"label": rows["label"].astype(kind)}).metrics["loss"] > 0  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(),
        cross_entropy,
        partial(cross_entropy, label_smoothing=0.1),
        nn.CrossEntropyLoss(weight=torch.ones(3)),
        nn.MultiMarginLoss(weight=torch.ones(3)),
    ],
)
def test_a_loss_whose_denominator_is_known_is_no_warning(tmp_path: Path, loss: Any) -> None:
    Variant.fields = {"loss": loss}
    assert train(tmp_path).warnings == []


def log_cosh(output: Tensor, label: Tensor) -> Tensor:
    return (output - label).cosh().log().mean()


def test_a_loss_of_the_recipes_own_that_may_compare_rows_with_others_is_a_warning(tmp_path: Path) -> None:
    columns = datasets.blobs(100)
    rows = columns | {"label": columns["label"].astype(np.float32)}
    Variant.fields = {"model": nn.Linear(8, 1), "loss": log_cosh, "metrics": {}}
    [warning] = train(tmp_path / "column", rows).warnings
    assert warning.startswith("the output of the model has shape [rows, 1], and the label 'label' [rows]")
    assert warning.endswith("End the model with nn.Flatten(0), or with squeeze(1).")
    Variant.fields |= {"model": nn.Sequential(nn.Linear(8, 1), nn.Flatten(0))}
    assert train(tmp_path / "flat", rows).warnings == []


def weigh(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    losses = nn.functional.cross_entropy(model(batch), batch["label"], reduction="none")
    return (losses * batch["weight"]).mean()


def weighted_blobs(rows: int, seed: int = 0) -> dict[str, Any]:
    return datasets.blobs(rows, seed) | {"weight": np.zeros(rows, np.float32)}


def test_a_step_may_use_extra_columns(tmp_path: Path) -> None:
    splits = {"train": weighted_blobs(100), "validation": weighted_blobs(40, seed=1)}
    uri = datasets.write(tmp_path / "dataset", splits)
    Variant.fields = {"step": weigh, "extra_columns": ["weight"]}
    fitted = fit(f"{__name__}:varied", dataset=uri, model=str(tmp_path / "model"), epochs=1, batch_size=25)
    assert fitted.metrics["loss"] == fitted.metrics["validation_loss"] == 0, "all weights are 0"
    assert len(load_model(str(tmp_path / "model")).predict({"x": datasets.blobs(5)["x"]})["class_"]) == 5


def test_a_column_that_a_step_uses_without_declaring_it_is_named(tmp_path: Path) -> None:
    Variant.fields = {"step": weigh}
    with pytest.raises(TrainyardError, match=r"uses the column 'weight', .* Write extra_columns=\['weight'\]"):
        train(tmp_path, weighted_blobs(100))


def weigh_in_validation(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    losses = nn.functional.cross_entropy(model(batch), batch["label"], reduction="none")
    return losses.mean() if model.training else (losses * batch["weight"]).mean()


@pytest.mark.parametrize("step", [weigh, weigh_in_validation])
@pytest.mark.parametrize("options", [{}, {"weight_by": "weight"}])
def test_batches_of_training_and_validation_have_the_same_columns(
    tmp_path: Path, step: Any, options: dict[str, Any]
) -> None:
    """Also where training reads a column of weights to draw rows."""
    rows = datasets.blobs(100) | {"weight": np.ones(100)}
    uri = datasets.write(tmp_path / "dataset", {"train": rows, "validation": rows})
    Variant.fields = {"step": step}
    with pytest.raises(TrainyardError, match=r"uses the column 'weight', .* Write extra_columns=\['weight'\]"):
        fit(f"{__name__}:varied", dataset=uri, model=str(tmp_path), epochs=1, batch_size=25, **options)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["wigth"], r"extra_columns=\['wigth'\] names the column 'wigth', .* columns are x, label, weight"),
        ("weight", r"extra_columns='weight' is a text; write \['weight'\]"),
    ],
)
def test_invalid_extra_columns_are_refused(tmp_path: Path, extra: Any, message: str) -> None:
    Variant.fields = {"step": weigh, "extra_columns": extra}
    with pytest.raises(TrainyardError, match=message):
        train(tmp_path, weighted_blobs(100))


def mix(columns: dict[str, Tensor]) -> dict[str, Tensor]:
    return columns | {"share": torch.rand(())}


def double(columns: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.cat([column, column]) for name, column in columns.items()}


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (mix, r"column 'share' of shape \[\] for a batch of 25 rows.*\.expand\(len\(columns\['x'\]\)\)"),
        (double, r"column 'x' of shape \[50, 8\] for a batch of 25 rows"),
        (lambda columns: columns | {"share": 0.5}, r"column 'share' of type float for a batch of 25 rows"),
        (lambda columns: None, r"a NoneType; return a dict of tensors"),
    ],
)
def test_a_transform_that_changes_the_number_of_rows_is_refused(tmp_path: Path, transform: Any, message: str) -> None:
    """Their micro-batches would drop rows; a group that became smaller has some."""
    Variant.fields = {"transform": transform}
    with pytest.raises(TrainyardError, match=f"^the recipe's transform= returned {message}"):
        train(tmp_path)


def test_a_transform_that_uses_a_column_which_is_not_read_is_told_how_to_read_it(tmp_path: Path) -> None:
    Variant.fields = {"transform": lambda columns: columns | {"x": columns["z"]}}
    message = r"^the recipe's transform= raised KeyError\('z'\); the columns of its batch are x, label\. To use another"
    with pytest.raises(TrainyardError, match=message):
        train(tmp_path)


def test_a_transform_may_add_columns(tmp_path: Path) -> None:
    Variant.fields = {"transform": lambda columns: columns | {"share": torch.rand(()).expand(len(columns["x"]))}}
    assert len(train(tmp_path, options={"micro_batches": 2}).history.epochs) == 2


def blobs_with_ignored(rows: int) -> dict[str, Any]:
    """Return rows of which the label of the first ones is -1."""
    columns = datasets.blobs(100)
    return columns | {"label": np.where(np.arange(100) < rows, -1, columns["label"])}


IGNORING = [nn.CrossEntropyLoss(ignore_index=-1), partial(cross_entropy, ignore_index=-1)]


class OfCounted(nn.Module):
    """A loss of a user's own that ignores labels."""

    ignore_index, reduction = -1, "mean"

    def forward(self, output: Tensor, label: Tensor) -> Tensor:
        return cross_entropy(output, label, ignore_index=-1)


def test_labels_that_a_loss_of_the_recipes_own_ignores_are_a_warning(tmp_path: Path) -> None:
    Variant.fields = {"loss": OfCounted()}
    [warning] = train(tmp_path / "ignored", blobs_with_ignored(20)).warnings
    assert warning.startswith("OfCounted(ignore_index=-1) may divide by the number of the other labels")
    assert train(tmp_path / "none", blobs_with_ignored(0)).warnings == []


WEIGHTS = torch.tensor([1.0, 5.0, 0.5])


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(ignore_index=-1),
        partial(cross_entropy, ignore_index=-1, weight=WEIGHTS, label_smoothing=0.1),
        nn.CrossEntropyLoss(ignore_index=-1, weight=WEIGHTS),
    ],
)
def test_micro_batches_count_by_the_labels_that_the_loss_averages_over(tmp_path: Path, loss: Any) -> None:
    """Of 60 of 100 rows the label is ignored."""
    Variant.fields = {"loss": loss}
    rows = datasets.blobs(100)
    rows["label"] = np.where(np.arange(100) % 5 < 3, -1, rows["label"])
    uri = datasets.write(tmp_path / "dataset", {"train": rows, "validation": rows})
    results = [
        fit(
            f"{__name__}:varied", dataset=uri, model=str(tmp_path / f"model{parts}"), epochs=2, batch_size=batch,
            micro_batches=parts,
        ).history.epochs
        for batch, parts in ((100, 1), (100, 32))
    ]  # fmt: skip
    for one, other in zip(*results, strict=True):
        assert {name: other[name] for name in ("loss", "validation_loss")} == pytest.approx(
            {name: one[name] for name in ("loss", "validation_loss")}, rel=1e-4
        )


@pytest.mark.parametrize("loss", IGNORING)
@pytest.mark.parametrize(("first", "valid"), [(-1, True), (-2, False)])
def test_ignored_labels_need_not_be_the_number_of_a_class(tmp_path: Path, first: int, valid: bool, loss: Any) -> None:
    Variant.fields = {"loss": loss, "classes": 3}
    rows = blobs_with_ignored(20)
    rows["label"][0] = first
    with nullcontext() if valid else pytest.raises(TrainyardError, match=r"labels must be 0 to 2; .* has -2 to 2"):
        train(tmp_path, rows)


@pytest.mark.parametrize(("rows", "message"), [(20, "has -1 to 2"), (100, "has -1 to -1")])
def test_more_classes_are_no_advice_for_negative_labels(tmp_path: Path, rows: int, message: str) -> None:
    Variant.fields = {"classes": 3}
    with pytest.raises(TrainyardError, match=rf"labels must be 0 to 2; .* {message}\. Renumber .* in prepare\.py\.$"):
        train(tmp_path, blobs_with_ignored(rows))


BINARY = {"model": nn.Sequential(nn.Linear(8, 1), nn.Flatten(0)), "loss": nn.BCEWithLogitsLoss(), "metrics": {}}


@pytest.mark.parametrize(
    ("fields", "label", "message"),
    [
        (BINARY, np.arange(100) % 2 + 1, "BCEWithLogitsLoss takes labels from 0 to 1, .* of split 'train' has 1 to 2"),
        (BINARY, np.arange(100) % 2 * 2.0 - 1, "BCEWithLogitsLoss takes labels from 0 to 1, .* has -1 to 1"),
        ({}, np.arange(100) % 4, "the model has 3 outputs .* 'label' has 3. Build the model with 4 outputs, or"),
        ({}, np.arange(100) % 4 - 1, "CrossEntropyLoss takes numbers of classes from 0 on, .* has -1 to 2"),
        ({}, np.arange(100) % 3 * 1.0, "CrossEntropyLoss takes numbers of classes, .* has type double. Write cast"),
    ],
)
def test_labels_that_the_loss_does_not_take_are_refused(
    tmp_path: Path, fields: dict[str, Any], label: Any, message: str
) -> None:
    Variant.fields = fields
    with pytest.raises(TrainyardError, match=message):
        train(tmp_path, datasets.blobs(100) | {"label": label})


@pytest.mark.parametrize("values", [{"-100": 1, "0": 5, "-1": 1}, {"-100": 1, "0": 5}])
def test_each_label_is_checked_where_the_statistics_count_values(tmp_path: Path, values: dict[str, int]) -> None:
    rows = datasets.blobs(100) | {"label": np.where(np.arange(100) == 0, -100, np.zeros(100, np.int64))}
    dataset = manifests.read_current(datasets.write(tmp_path, {"train": rows}))
    label = dataset.splits["train"].statistics["label"]
    dataset.splits["train"].statistics["label"] = label.model_copy(update={"values": values})
    with pytest.raises(TrainyardError, match="has -1 to 0") if "-1" in values else nullcontext():
        check_labels("recipes:linear", linear(), dataset, ["train"])


def test_a_transform_may_make_labels_that_the_loss_takes(tmp_path: Path) -> None:
    Variant.fields = BINARY | {"transform": lambda columns: columns | {"label": columns["label"] - 1}}
    rows = datasets.blobs(100) | {"label": np.arange(100) % 2 + 1}
    assert len(train(tmp_path, rows).history.epochs) == 2


def test_a_batch_of_which_all_labels_are_ignored_does_not_count(tmp_path: Path) -> None:
    """torch's is NaN: it is a mean over no rows."""
    Variant.fields = {
        "loss": nn.CrossEntropyLoss(ignore_index=-1),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, 0.0),
    }
    some = train(tmp_path / "some", blobs_with_ignored(60), {"batch_size": 1}).history.epochs[0]["loss"]
    none = train(tmp_path / "none", blobs_with_ignored(60), {"batch_size": 100}).history.epochs[0]["loss"]
    assert some == pytest.approx(none, rel=1e-5)


class Normalized(nn.Sequential):
    """Batch normalization of the elements of a row, or of two channels of four values each."""

    def __init__(self, channels: int = 0) -> None:
        norm = nn.BatchNorm1d(channels or 8)
        super().__init__(*([nn.Unflatten(1, (channels, -1))] if channels else []), norm, nn.Flatten(), nn.Linear(8, 3))


@pytest.mark.parametrize("options", [{"batch_size": 33}, {"batch_size": 10, "micro_batches": 10}])
def test_batch_normalization_of_one_row_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(Variant, "fields", {"model": Normalized()})
    with pytest.raises(TrainyardError, match=r"a micro-batch of a worker has one row, which batch normalization"):
        train(tmp_path, options=options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "options"),
    [
        (Normalized(), {"batch_size": 49}),
        (Normalized(), {"batch_size": 50, "micro_batches": 25}),
        (Normalized(channels=2), {"batch_size": 33}),
    ],
)
def test_batch_normalization_of_more_values_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: nn.Module, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(Variant, "fields", {"model": model})
    assert len(train(tmp_path, options=options).history.epochs) == 2


@given(rows=st.integers(1, 60), batch=st.integers(1, 20), workers=st.integers(1, 5), micro_batches=st.integers(1, 6))
def test_the_smallest_micro_batch_is_that_of_the_loop(rows: int, batch: int, workers: int, micro_batches: int) -> None:
    order, smallest = Order((rows,), batch, 0, 1), rows
    for step in range(order.steps):
        for share in np.diff(_split_evenly(order.size(step), workers)):
            columns = {"x": torch.zeros(max(int(share), 1), 1)}
            smallest = min(
                smallest, *(len(part["x"]) for _, part in split_batch(columns, int(share), micro_batches, False))
            )
    assert count_smallest_micro_batch(rows, batch, workers, micro_batches) == smallest


def normalize_mixture(folder: Path, main: dict[str, Any], other: dict[str, Any], **statistics: Statistics) -> float:
    """Return the mean by which `x` is normalized in a mixture; the other dataset has half of the rows."""
    uris = [datasets.write(folder / name, {"train": rows}) for name, rows in (("main", main), ("other", other))]
    manifest, portion = manifests.read_current(uris[0]), Portion.of(uris[1], 0.5)
    portion.manifest.splits["train"].statistics.update(statistics)
    recipe = replace(linear(size=1), normalize="element")
    return build_normalization(recipe, manifest.columns, manifest, [portion])["x"].mean[0]


def repeat(value: float, length: int, rows: int) -> dict[str, Any]:
    return {"x": [np.full((length, 1), value, np.float32)] * rows}


def test_the_mean_of_a_mixture_counts_each_dataset_by_its_share_of_rows(tmp_path: Path) -> None:
    values = [{"x": np.full((rows, 1), value, np.float32)} for rows, value in ((10, 1.0), (90, 0.0))]
    assert normalize_mixture(tmp_path, *values) == pytest.approx(0.5)


def test_the_mean_of_a_variable_length_column_counts_each_dataset_by_its_share_of_elements(tmp_path: Path) -> None:
    assert normalize_mixture(tmp_path, repeat(1, length=9, rows=10), repeat(0, length=1, rows=90)) == pytest.approx(0.9)


def test_a_dataset_whose_rows_are_all_empty_does_not_change_the_mean_of_a_mixture(tmp_path: Path) -> None:
    empty = Statistics(count=0)
    assert normalize_mixture(tmp_path, repeat(1, length=9, rows=10), repeat(0, length=1, rows=10), x=empty) == 1
