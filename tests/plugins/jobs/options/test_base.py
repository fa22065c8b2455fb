"""An option is a field of a model with its text, and a line of a signature; all else follows from both."""

from __future__ import annotations

import inspect
import pydoc
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from airflow.sdk import DAG
from pydantic import PositiveInt

from stack.docs.options import constructor_table
from tests.plugins.contexts import MappedResults
from trainyard.errors import TrainyardError
from trainyard.jobs.options.base import Templated, as_lists, default
from trainyard.operators import ExportOperator, PredictOperator, TrainOperator
from trainyard.schemas.document import Part
from trainyard.schemas.specs import TrainOptions, TrainSpec
from trainyard.schemas.specs.fields import Inlined, Location

RECIPE = {"recipe": "toy.recipe:network", "dataset": "toy/data", "model": "toy/model"}
SOURCE = {"prepare": "toy.prepare:load", "source": "/in", "dataset": "toy/data"}


class LoopWithPatience(TrainOptions):
    """Options of the training loop, and one more."""

    patience: PositiveInt = 7
    """How many epochs are waited for."""


class SpecWithNotes(TrainSpec):
    """A training, and two options more."""

    notes: dict[str, Any] = {}
    """What is written beside the model,
    as a dict."""
    warm_start: Location | None = None
    """The model to start from."""
    options: Annotated[LoopWithPatience, Inlined()] = LoopWithPatience()


class OperatorWithNotes(TrainOperator):
    """Train with notes."""

    SPEC = SpecWithNotes

    def __init__(
        self,
        *,
        notes: dict[str, Any] | None = None,
        warm_start: str | None = None,
        patience: Templated[int] = default(LoopWithPatience, "patience"),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)


@pytest.fixture
def dag(tmp_path: Path) -> Iterator[DAG]:
    package = tmp_path / "toy"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "recipe.py").write_text("def network(): ...\n")
    (package / "prepare.py").write_text("def load(): ...\n")
    with DAG("toy", schedule=None) as dag:
        dag.fileloc = str(tmp_path / "dag.py")
        yield dag


def train(**options: Any) -> OperatorWithNotes:
    return OperatorWithNotes(**{"task_id": "train", **RECIPE, **options})


def test_a_field_and_a_line_of_the_signature_make_an_option(dag: DAG) -> None:
    operator = train(notes={"by": "me"}, patience=3)
    assert operator.spec_fields()["notes"] == {"by": "me"}
    assert operator.spec_fields()["options"]["patience"] == operator.patience == 3
    assert {"notes", "patience", "epochs", "recipe", "memory"} <= {*operator.template_fields}
    assert operator.template_fields_renderers["notes"] == "json"


def test_an_option_has_its_default_without_a_value(dag: DAG) -> None:
    fields = train().spec_fields()
    assert (fields["notes"], fields["options"]["patience"], fields["warm_start"]) == ({}, 7, None)
    assert train(task_id="b", notes=None).spec_fields()["notes"] == {}


def test_the_text_of_a_field_is_in_help_and_in_the_reference() -> None:
    text = pydoc.plain(pydoc.render_doc(OperatorWithNotes))
    assert "     notes: What is written beside the model, as a dict." in text
    table = constructor_table(OperatorWithNotes, [OperatorWithNotes], OperatorWithNotes.template_fields)
    assert "| `patience` | `int` | `7` | yes | How many epochs are waited for. |" in table
    assert "    notes: What is written beside the model, as a dict." in (inspect.getdoc(SpecWithNotes) or "")
    assert "epochs:" not in (inspect.getdoc(OperatorWithNotes) or ""), "help has the options of a base with the base"


def test_an_error_names_the_option_as_the_user_wrote_it(dag: DAG) -> None:
    with pytest.raises(TrainyardError, match=r"OperatorWithNotes 'train': patience=0: write a number greater than 0\."):
        train(patience=0)
    with pytest.raises(TrainyardError, match=r"'patiens' is not a known option; the nearest one is 'patience'"):
        train(patiens=3)


def test_a_location_is_found_by_its_type(dag: DAG) -> None:
    fields = train(warm_start="toy/first", mix=[{"dataset": "toy/other", "share": 0.1}]).resolve_fields("file:///s")
    assert fields["warm_start"] == "file:///s/toy/first"
    assert fields["mix"][0]["dataset"] == "file:///s/toy/other"


def test_a_template_that_needs_no_field_to_be_listed_is_rendered(dag: DAG) -> None:
    operator = train(patience="{{ params.patience }}", notes={"day": "{{ params.day }}"})
    operator.render_template_fields({"params": {"patience": 4, "day": "monday"}})
    assert (operator.patience, operator.notes) == ("4", {"day": "monday"})


def test_a_subclass_may_list_template_fields_of_its_own(dag: DAG) -> None:
    class Team(TrainOperator):
        template_fields = (*TrainOperator.template_fields, "team")

        def __init__(self, *, team: str, dataset: str, **kwargs: Any) -> None:
            self.team = team
            super().__init__(dataset=f"{team}/{dataset}", **kwargs)

    class Red(Team):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(team="{{ params.team }}", **kwargs)

    operator = Red(task_id="red", **RECIPE)
    operator.render_template_fields({"params": {"team": "red"}})
    assert (operator.team, operator.dataset) == ("red", "red/toy/data")


def test_options_of_a_source_are_parts_of_it(dag: DAG) -> None:
    export = ExportOperator(task_id="a", format="csv", **SOURCE)
    assert export.spec_fields()["source"] == {"format": "csv", "path": "/in", "options": {}}
    whole = {"format": "jdbc", "options": {"url": "jdbc:x"}}
    assert ExportOperator(task_id="b", **{**SOURCE, "source": whole}).spec_fields()["source"] == whole
    with pytest.raises(TrainyardError, match=r"'c': options=3: write a dict\."):
        ExportOperator(task_id="c", options=3, **SOURCE)


def test_the_output_of_a_job_is_found_by_its_type() -> None:
    assert (ExportOperator.OUTPUT, TrainOperator.OUTPUT, PredictOperator.OUTPUT) == ("dataset", "model", "output")


def test_an_option_that_is_fixed_is_no_template() -> None:
    assert {"deferrable", "poll_interval"}.isdisjoint(TrainOperator.template_fields)


def test_texts_are_not_read_before_they_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> str:
        raise AssertionError("the source is read")

    monkeypatch.setattr(inspect, "getsource", refuse)

    class Spec(TrainSpec):
        """A training."""

        extra: int = 3
        """More."""

    class Operator(TrainOperator):
        """Train."""

        SPEC = Spec

        def __init__(self, *, extra: int = 3, **kwargs: Any) -> None:
            super().__init__(**kwargs)

    monkeypatch.undo()
    assert "extra: More." in (Operator.__doc__ or "")


def test_a_class_without_its_source_has_the_docstring_that_is_written() -> None:
    namespace: dict[str, Any] = {}
    code = "class Lone(Part):\n    'Alone.'\n    x: int = 1\n    'A text.'\n"
    exec(
        code, {"__name__": "nowhere", "Part": Part}, namespace
    )  # as in an interpreter, or where only compiled files are
    assert namespace["Lone"].__doc__ == "Alone."


def test_results_of_a_mapped_task_are_requested_up_to_the_last_one() -> None:
    requested: list[int] = []

    class Recorded(MappedResults):
        def __getitem__(self, index: int) -> Any:
            requested.append(index)
            return super().__getitem__(index)

    assert as_lists(Recorded("a", "b")) == ["a", "b"]
    assert requested == [0, 1], "Airflow logs an error for a request that has no result"
