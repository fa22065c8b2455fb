"""Evaluations in the report."""

from __future__ import annotations

from pathlib import Path

from tests.plugins.evaluations import beside, evaluation, scores
from trainyard.report import evaluations, render
from trainyard.report.evaluations import Matrix
from trainyard.schemas.evaluation import Example, Interval, Scores, Slice
from trainyard.schemas.results import EvaluationResult, EvaluationsResult
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey

ENDS: dict[str, Interval] = {"accuracy": (0.8, 0.95)}
SLICE = Slice(column="<i>city", value="Ur", rows=7, metrics={"accuracy": 1.0, "auroc": None}, intervals=ENDS)
MATRIX = [[5, 1], [0, 4]]


def model(**metrics: object) -> Scores:
    return Scores(**scores("model", "f" * 64, **metrics), slices=(SLICE,))


def test_a_metric_is_shown_with_its_interval() -> None:
    view = evaluations.build_view(evaluation(model(accuracy=0.9, auroc=None, confusion_matrix=MATRIX)))
    assert view.numbers == ("accuracy", "auroc")
    assert view.lines == (("model", ("0.9 (0.8 to 1)", "–")),)
    assert view.slices == ((SLICE, ("1 (0.8 to 0.95)", "–")),)
    assert view.matrices == (Matrix("Confusion matrix", ("0", "1"), MATRIX),)


def test_a_baseline_is_shown_with_its_difference() -> None:
    view = evaluations.build_view(
        evaluation(model(accuracy=0.9), beside("other", "0" * 64, accuracy=(-0.01, 0.02, 0.04)))
    )
    assert view.lines[1] == ("other", ("–",))
    assert view.differences == (("other", ("0.02 (-0.01 to 0.04)",)),)


def test_every_label_has_its_own_confusion_matrix() -> None:
    first, second = evaluations.build_view(evaluation(model(confusion_matrix=[MATRIX, MATRIX]))).matrices
    assert (first.title, second.title) == ("Confusion matrix of label 0", "Confusion matrix of label 1")
    assert first.counts == second.counts == MATRIX


def test_classes_of_a_confusion_matrix_have_their_names() -> None:
    (matrix,) = evaluations.build_view(evaluation(model(confusion_matrix=MATRIX), classes=("<ähre>", "rye"))).matrices
    assert matrix.classes == ("<ähre>", "rye")


def test_every_head_has_its_own_confusion_matrix_with_the_names_of_its_classes() -> None:
    metrics = {"kind/confusion_matrix": MATRIX, "kind/accuracy": 0.9, "sex/confusion_matrix": MATRIX}
    view = evaluations.build_view(evaluation(model(**metrics), head_classes={"kind": ("oat", "rye")}))
    assert view.matrices == (
        Matrix("Confusion matrix of kind", ("oat", "rye"), MATRIX),
        Matrix("Confusion matrix of sex", ("0", "1"), MATRIX),
    )
    assert view.numbers == ("kind/accuracy",)


def test_the_curves_of_classes_share_a_plot() -> None:
    points = [[0.0, 0.0], [0.5, 1.0], [1.0, 1.0]]
    curves = {"ROC of 0": points, "ROC of 1": points, "calibration": points}
    view = evaluations.build_view(evaluation(model(), curves=curves))
    assert [(plot.title, list(plot.curves)) for plot in view.plots] == [
        ("ROC", ["0", "1"]),
        ("Calibration", ["calibration"]),
    ]
    assert view.plots[0].options["series"][1] == {"name": "1", "color": "run-1", "dash": "solid", "points": points}


def test_the_page_shows_everything_and_escapes_every_name(tmp_path: Path) -> None:
    worst = Example(loss=3.2, label=1, prediction={"class_": 0}, row={"<b>id": "<script>hey"})
    stored = evaluation(
        model(accuracy=0.9, confusion_matrix=MATRIX).model_copy(update={"uri": str(tmp_path)}),
        examples=(worst,), curves={"<ROC>": [[0, 0], [1, 1]]}, classes=("<ähre>", "rye"),
    )  # fmt: skip
    stored.save()
    task_key = TaskKey(dag_id="toy", run_id="r", task_id="evaluate", directory=str(tmp_path))
    record = RunRecord(
        task_key=task_key, job="evaluate", application="a", started_at=0.0, seconds=1.0, status="succeeded",
        output=EvaluationResult.from_evaluation(stored),
    )  # fmt: skip
    page = render.render_page([record], [])
    for text in (
        "0.9 (0.8 to 1)",
        '<th scope="col">&lt;ähre&gt;</th><th scope="col">rye</th>',
        "&lt;i&gt;city = Ur",
        "&lt;script&gt;hey",
        "&lt;b&gt;id",
        "\\u003cROC\\u003e",
        "3.2",
    ):
        assert text in page
    assert "<script>hey" not in page and "<ROC>" not in page
    Path(stored.uri).unlink()
    assert "0.9 (0.8 to 1)" not in render.render_page([record], []), "it was removed since"


def test_the_page_has_each_of_several_models_that_a_task_evaluated(tmp_path: Path) -> None:
    stored = [
        evaluation(model(accuracy=accuracy).model_copy(update={"uri": f"{tmp_path}/{name}"}))
        for name, accuracy in (("a", 0.75), ("b", 0.5))
    ]
    for one in stored:
        one.save()
    results = list(map(EvaluationResult.from_evaluation, stored))
    key = TaskKey(dag_id="toy", run_id="r", task_id="evaluate", directory=f"{tmp_path}/runs/toy/r")
    record = RunRecord(
        task_key=key, job="evaluate", application="a", started_at=0.0, seconds=1.0, status="succeeded",
        output=EvaluationsResult.from_evaluations(str(tmp_path), results),
    )  # fmt: skip
    page = render.render_page([record], [])
    assert page.count('class="evaluation"') == 2 and "0.75 (0.65 to 0.85)" in page and "0.5 (0.4 to 0.6)" in page
    assert "<td>a: accuracy 0.75; b: accuracy 0.5</td>" in page
