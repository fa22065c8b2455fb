"""What the report shows of evaluations."""

from __future__ import annotations

from pathlib import Path

from tests.plugins.evaluations import beside, evaluation, scores
from trainyard.report import evaluations, render
from trainyard.schemas.evaluation import Example, Interval, Scores, Slice
from trainyard.schemas.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey

ENDS: dict[str, Interval] = {"accuracy": (0.8, 0.95)}
SLICE = Slice(column="<i>city", value="Ur", rows=7, metrics={"accuracy": 1.0, "auroc": None}, intervals=ENDS)
MATRIX = [[5, 1], [0, 4]]


def model(**metrics: object) -> Scores:
    return Scores(**scores("model", "w" * 64, **metrics), slices=(SLICE,))


def test_a_metric_is_told_with_its_interval() -> None:
    found = evaluations.shown(evaluation(model(accuracy=0.9, auroc=None, confusion_matrix=MATRIX)))
    assert found.numbers == ("accuracy", "auroc")
    assert found.lines == (("model", ("0.9 (0.8 to 1)", "–")),)
    assert found.slices == ((SLICE, ("1 (0.8 to 0.95)", "–")),)
    assert found.matrices == (MATRIX,)


def test_another_model_stands_beside_with_the_difference() -> None:
    found = evaluations.shown(evaluation(model(accuracy=0.9), beside("other", "o" * 64, accuracy=(-0.01, 0.02, 0.04))))
    assert found.lines[1] == ("other", ("–",))
    assert found.differences == (("other", ("0.02 (-0.01 to 0.04)",)),)


def test_of_several_labels_there_is_a_matrix_each() -> None:
    assert evaluations.shown(evaluation(model(confusion_matrix=[MATRIX, MATRIX]))).matrices == (MATRIX, MATRIX)


def test_curves_are_drawn_upwards() -> None:
    found = evaluations.shown(evaluation(model(), curves={"ROC": [[0, 0], [0.5, 1], [1, 1]]}))
    assert found.curves[0].points == "0.0,180.0 90.0,0.0 180.0,0.0"


def test_the_page_has_all_of_it_and_trusts_no_name(tmp_path: Path) -> None:
    worst = Example(loss=3.2, label=1, prediction={"class_": 0}, row={"<b>id": "<script>"})
    found = evaluation(
        model(accuracy=0.9, confusion_matrix=MATRIX).model_copy(update={"uri": str(tmp_path)}),
        examples=(worst,), curves={"ROC": [[0, 0], [1, 1]]},
    )  # fmt: skip
    found.save()
    task_key = TaskKey(dag_id="toy", run_id="r", task_id="evaluate", directory=str(tmp_path))
    ran = RunRecord(
        task_key=task_key, job="evaluate", application="a", started_at=0.0, seconds=1.0, status="succeeded",
        output=found.summary(),
    )  # fmt: skip
    page = render.page([ran], [])
    for text in ("0.9 (0.8 to 1)", "&lt;i&gt;city = Ur", "&lt;script&gt;", "&lt;b&gt;id", "polyline", "3.2"):
        assert text in page
    assert "<script>" not in page
    Path(found.uri).unlink()
    assert "0.9 (0.8 to 1)" not in render.page([ran], []), "it was removed since"
