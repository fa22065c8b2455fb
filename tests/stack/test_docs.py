"""The generated pages are those of the code, and describe all of it."""

from __future__ import annotations

import html
import re

import pytest

from stack.docs import airflow_pages, docstrings, recording, troubleshooting
from stack.docs.__main__ import DOCS, render_all
from stack.docs.results import RESULTS
from stack.docs.symptoms import SYMPTOMS
from trainyard import operators, sensors, triggers
from trainyard.diagnosis.rules import EXIT_CODE_RULES, RULES
from trainyard.schemas.results import WITHOUT_JOB, EvaluationsResult
from trainyard.schemas.specs import SPECS
from trainyard.schemas.specs.metrics import CLASSIFICATION, RANKING, REGRESSION


@pytest.fixture(scope="module")
def rendered() -> dict[str, str]:
    return render_all()


def test_the_generated_files_are_those_of_the_code(rendered: dict[str, str]) -> None:
    stale = [path for path, text in rendered.items() if not (DOCS / path).exists() or (DOCS / path).read_text() != text]
    assert stale == [], "run `make docs`"


def test_every_public_class_is_on_a_page() -> None:
    described = {one.__name__ for one in (*airflow_pages.STAGES, *airflow_pages.OTHERS)}
    assert described | {"Memory", "Placement", "asset"} == set(operators.__all__)
    assert {one.__name__ for one in airflow_pages.SENSORS} == set(sensors.__all__)
    assert {one.__name__ for one in airflow_pages.TRIGGERS} == set(triggers.__all__)


def test_every_name_of_the_python_interface_is_on_a_page(rendered: dict[str, str]) -> None:
    from trainyard import etl, trainer

    text, classes = rendered["reference/python.md"], rendered["reference/strategies.md"]
    names = [name for name in trainer.__all__ if f"Class `{name}`" not in classes] + etl.__all__
    assert [name for name in names if f"\n### `{name}`\n" not in text] == []


@pytest.mark.parametrize("page", ["reference/python.md", "reference/schema-fields.md"])
def test_every_argument_and_field_has_a_type_and_a_meaning(rendered: dict[str, str], page: str) -> None:
    tables = rendered[page].partition("## Files")[0]
    rows = [re.split(r" (?<!\\)\| ", line.strip("| ")) for line in tables.splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    assert [row for row in rows if not all((row[0], row[1], row[-1]))] == []


def test_commands_are_shown_with_their_short_options_and_all_exit_statuses(rendered: dict[str, str]) -> None:
    page = rendered["reference/cli.md"]
    for text in ("`-o, --output {table,json,yaml}`", "`-y, --yes`", "`trainyard --version`", " and 141 if "):
        assert text in page


def test_functions_are_shown_as_they_are_called(rendered: dict[str, str]) -> None:
    page, fields = rendered["reference/python.md"], rendered["reference/schema-fields.md"]
    assert "`load_model(model, recipe=None)`" in page
    assert "#### `Run.report`\n\n`report(**values)`" in page
    assert "add(name, wall_ns, duration_ns, /, **args)" in fields


def test_no_page_has_what_only_sphinx_shows() -> None:
    """GitHub shows a directive as code."""
    assert [str(page) for page in DOCS.rglob("*.md") if "```{" in page.read_text()] == []


def test_every_option_of_an_operator_has_a_meaning(rendered: dict[str, str]) -> None:
    rows = [line for line in rendered["reference/operators.md"].splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    assert [row for row in rows if not row.split(" | ")[-1].strip(" |")] == []


def test_templates_are_the_template_fields() -> None:
    page = airflow_pages.render_operators()
    assert re.search(r"\| `output` \| .+? \| `None` \| yes \|", page), "stored as `predictions`"
    assert re.search(r"\| `deferrable` \| .+? \| `None` \| no \|", page)
    assert re.search(r"\| `grow_memory_to` \| .+? \| `None` \| yes \|", page)


def test_every_field_of_a_result_has_a_meaning() -> None:
    results = {*(spec.RESULT for spec in SPECS.values()), *WITHOUT_JOB.values(), EvaluationsResult}
    assert [one for one in results if {*docstrings.read(one).entries, "warnings"} != {*one.model_fields}] == []
    stages = {operator.__name__ for operator in airflow_pages.STAGES}
    assert {*RESULTS} <= {*operators.__all__, *sensors.__all__} - stages, "those have the results of their jobs"


def test_the_metrics_page_has_every_metric(rendered: dict[str, str]) -> None:
    page = rendered["reference/metrics.md"]
    assert [name for name in (*CLASSIFICATION, *REGRESSION, *RANKING) if f"| `{name}` |" not in page] == []


def test_every_rule_of_the_diagnosis_is_explained() -> None:
    plan, used = troubleshooting.example_plan(), set()
    for symptom in (one for symptoms in SYMPTOMS.values() for one in symptoms):
        assert troubleshooting.explain(symptom, plan).sentence
        rules = [*RULES, *EXIT_CODE_RULES]
        used.add(next(number for number, (pattern, _) in enumerate(rules) if pattern.search(symptom.text)))
    assert [pattern.pattern for number, (pattern, _) in enumerate(rules) if number not in used] == []


def test_a_placeholder_in_a_diagnosis_is_no_tag(rendered: dict[str, str]) -> None:
    assert r"capacity.\<queue>.disable" in rendered["troubleshooting.md"]


def test_a_docstring_is_read_in_parts() -> None:
    def function() -> None:
        """Do it.

        Returns (XCom): the `uri`.

        Args:
            name: The name,
                on two lines.
            size: The size.
        """

    read = docstrings.read(function)
    assert read.text == "Do it."
    assert read.entries == {"name": "The name, on two lines.", "size": "The size."}


def test_the_recorded_terminal_shows_commands_that_exist(rendered: dict[str, str]) -> None:
    """`make recording` draws it. That needs a Hadoop, so this compares what it can."""
    ours = [command for command in recording.COMMANDS if command.startswith("trainyard ")]
    documented = tuple(f"{name} " for name in re.findall("## `(trainyard .*)`", rendered["reference/cli.md"]))
    assert [command for command in ours if not command.startswith(documented)] == []
    drawn = recording.FILE.read_text()
    text = html.unescape(re.sub(r"<[^>]+>", "", drawn)).replace("\xa0", " ")
    assert [command for command in recording.COMMANDS if f"$ {command}" not in text] == [], "run `make recording`"


def test_the_report_is_that_of_the_newest_run_that_is_shown() -> None:
    shown = "stage  status\nreport  hdfs://a/runs/digits/r/report.html\n"
    assert recording.find_report(shown) == "hdfs://a/runs/digits/r/report.html"


def test_a_terminal_is_drawn_without_fonts_of_another_host() -> None:
    drawn = recording.draw([("trainyard plan toy", "stage  master\nfits")])
    assert "plan" in drawn and "http" not in drawn.replace("http://www.w3.org/2000/svg", "")
