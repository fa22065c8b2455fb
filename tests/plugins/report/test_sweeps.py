"""The trainings of a mapped task: which is the best, and their curves over each other."""

from __future__ import annotations

from typing import Any

from tests.plugins.report import example
from tests.plugins.results import output
from trainyard.report import render
from trainyard.report.sweeps import MAX_LINES, Sweep, build_sweeps
from trainyard.schemas.results import ModelResult
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainOptions, TrainSpec


def make_spec(index: int, rate: float, task: str = "train", **options: Any) -> TrainSpec:
    return TrainSpec(
        task_key=TaskKey(dag_id="toy", run_id="r", task_id=task, map_index=index, directory="file:///s/runs/toy/r"),
        recipe="toy.recipe:network", recipe_params={"rate": rate}, dataset="file:///s/d",
        model=f"file:///s/m/{task}/{index}", options=TrainOptions(**options),
    )  # fmt: skip


def make_result(**metrics: float | None) -> ModelResult:
    return ModelResult(**output("train", metrics=metrics, best_epoch=2))


def build(
    rates: list[float], metrics: list[dict[str, float | None]], points: list[list[dict[str, float]]] | None = None,
    **options: Any,
) -> Sweep:  # fmt: skip
    tasks = [f"train@{number}" for number in range(len(rates))]
    specs = {task: make_spec(number, rates[number], **options) for number, task in enumerate(tasks)}
    results = {task: make_result(**of_task) for task, of_task in zip(tasks, metrics, strict=True)}
    [sweep] = build_sweeps("file:///s", specs, results, dict(zip(tasks, points or [[] for _ in tasks], strict=True)))
    return sweep


def test_the_training_with_the_lowest_validation_loss_is_the_best() -> None:
    sweep = build([0.1, 0.2, 0.3], [{"loss": 0.1, "validation_loss": loss} for loss in (0.5, 0.2, 0.4)])
    assert (sweep.task, sweep.metric) == ("train", "validation loss")
    assert [(member.name, member.best_epoch, member.value) for member in sweep.members] == [
        ("rate=0.2", 2, "0.2"), ("rate=0.3", 2, "0.4"), ("rate=0.1", 2, "0.5"),
    ]  # fmt: skip


def test_the_best_is_chosen_by_the_monitored_metric() -> None:
    metrics = [{"validation_loss": 0.1, "accuracy": score} for score in (0.5, 0.9)]
    assert [member.name for member in build([1, 2], metrics, monitor="accuracy").members] == ["rate=2", "rate=1"]
    own = [{"validation_loss": 0.1, "distance": score} for score in (5.0, 0.9)]
    for mode, best in (("max", "rate=1"), ("min", "rate=2")):
        assert build([1, 2], own, monitor="distance", monitor_mode=mode).members[0].name == best


def test_a_training_whose_metric_is_not_finite_comes_last() -> None:
    losses = (float("nan"), 0.4)
    sweep = build([1, 2], [{"loss": loss, "validation_loss": loss} for loss in losses])
    assert [(member.name, member.value) for member in sweep.members] == [("rate=2", "0.4"), ("rate=1", "")]


def test_curves_lie_over_each_other_by_epoch() -> None:
    short = [{"epoch": 1.0, "loss": 0.9}, {"epoch": 2.0, "loss": 0.8}]
    late = [{"epoch": 2.0, "loss": 0.7, "accuracy": 0.5}, {"epoch": 3.0, "loss": 0.6, "accuracy": 0.6}]
    loss, accuracy = build([1, 2], [{"loss": 0.8}, {"loss": 0.6}], [short, late]).charts
    assert (loss.title, loss.places) == ("Loss", ("1", "2", "3"))
    assert [(line.name, line.color, line.values) for line in loss.series] == [
        ("rate=2", "run-0", (None, 0.7, 0.6)), ("rate=1", "run-1", (0.9, 0.8, None)),
    ]  # fmt: skip
    assert [line.name for line in accuracy.series] == ["rate=2"]


def test_of_many_trainings_the_best_are_drawn_in_different_lines_and_all_are_listed() -> None:
    count = MAX_LINES + 3
    points = [[{"epoch": 1.0, "loss": 1.0 - number / 100}] for number in range(count)]
    sweep = build([*range(count)], [{"loss": of[0]["loss"]} for of in points], points)
    [chart] = sweep.charts
    assert [line.name for line in chart.series] == [f"rate={count - 1 - number}" for number in range(MAX_LINES)]
    assert len({(line.color, line.dash) for line in chart.series}) == MAX_LINES
    assert [member.style is None for member in sweep.members] == [False] * MAX_LINES + [True] * 3


def test_only_mapped_tasks_of_which_two_have_succeeded_are_sweeps() -> None:
    specs = {f"{task}@{n}": make_spec(n, n / 10, task) for task in ("first", "second") for n in range(2)}
    results = {task: make_result(loss=0.1) for task in ("first@0", "second@0", "second@1")}
    assert [sweep.task for sweep in build_sweeps("file:///s", specs, results, {})] == ["second"]
    alone = {"train": specs["first@0"].model_copy(update={"task_key": make_spec(-1, 0).task_key})}
    assert build_sweeps("file:///s", alone, {"train": make_result(loss=0.1)}, {}) == []


def test_trainings_of_equal_settings_are_named_by_their_tasks() -> None:
    assert [member.name for member in build([1, 1], [{"loss": 0.1}, {"loss": 0.2}]).members] == ["train@0", "train@1"]


def test_the_report_has_the_trainings_with_the_best_first() -> None:
    specs = {f"train@{n}": make_spec(n, rate) for n, rate in enumerate((0.1, 0.2))}
    records = [
        RunRecord(
            task_key=spec.task_key, job="train", started_at=1.0, seconds=1.0, application="a", status="succeeded",
            output=make_result(validation_loss=loss),
        )
        for spec, loss in zip(specs.values(), (0.5, 0.25), strict=True)
    ]  # fmt: skip
    events = example.Events([])
    for number in range(2):
        events.process(number + 1, 1, f"train@{number}", "worker 0")
        events.counter(number + 1, 1, "epoch", 1, epoch=1, loss=0.3, validation_loss=0.2)
    page = render.render_page(records, events.trace, specs=specs)
    section = page.split('<section class="sweep"')[1].split("</section>")[0]
    assert section.index("rate=0.2") < section.index("rate=0.1</a>")
    assert '<tr class="best">' in section
