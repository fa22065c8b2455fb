"""The matrix of versions: its rows, the results of tests, and the page that is rendered from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stack.hadoop import jars
from stack.matrix import __main__ as matrix
from stack.matrix import environments, page, results, rows
from stack.matrix.results import Counts, Result
from stack.matrix.rows import ROWS, SECTIONS, Row

ROOT = Path(__file__).parents[2]
REPORT = """<testsuites><testsuite>
<testcase classname="a" name="passes"/>
<testcase classname="a" name="passes, too"/>
<testcase classname="a" name="is skipped"><skipped message="no"/></testcase>
<testcase classname="b" name="fails"><failure message="ValueError: one">long</failure></testcase>
<testcase classname="b" name="fails, too"><failure message="ImportError:&#10;  no on_kill">long</failure></testcase>
<testcase classname="b" name="has no fixture"><error message="ImportError:&#10;  no on_kill">long</error></testcase>
<testcase name="c"><error message="collection failure">text&#10;E   ImportError: no on_kill</error></testcase>
</testsuite></testsuites>"""
PASSED = Result("pytest -q tests/a", "2026-11-24", "passed", seconds=90, passed=12)
FAILED = Result("pytest -q tests/a", "2026-11-24", "failed", 90, passed=10, failed=2, reason="`a | b` is wrong")
NOT_RUN = Result("pytest -q tests/a", "2026-11-24", "not run", reason="No interpreter found for Python 3.9")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_has_a_section_and_tests_that_exist(row: Row) -> None:
    assert row.software in SECTIONS
    assert all((ROOT / argument).exists() for argument in row.tests if argument.startswith("tests/"))


@pytest.mark.parametrize("row", [row for row in ROWS if row.packages], ids=lambda row: row.name)
def test_the_packages_of_a_row_are_in_the_requirements(row: Row) -> None:
    text = (ROOT / "requirements.in").read_text()
    replaced = set(text.splitlines()) - set(rows.merge_requirements([text], row.packages).splitlines())
    assert len([line for line in replaced if line and not line.startswith("#")]) == len(row.packages)


def test_rows_are_chosen_by_name() -> None:
    assert rows.select_rows([]) == list(ROWS) and len({row.name for row in ROWS}) == len(ROWS)
    assert [row.version for row in rows.select_rows(["hadoop-3.3.6", "python-3.13"])] == ["3.3.6", "3.13"]
    with pytest.raises(SystemExit, match=r"ROWS: there is no row 'hadoop-1'; use one of hadoop-3\.2\.4, "):
        rows.select_rows(["hadoop-1"])


def test_packages_replace_requirements_of_their_name() -> None:
    locked = "spark==1 \\\n    --hash=sha256:0a \\\n    --hash=sha256:0b\n    # via x\nspark-client==1\n"
    texts = [f"# why\n{locked}numpy\n", "-c requirements.txt\npandas<3\n"]
    assert rows.merge_requirements(texts, ["spark==2", "pandas==3"]) == "spark-client==1\nnumpy\nspark==2\npandas==3\n"


def test_each_version_of_hadoop_has_a_folder_of_its_own() -> None:
    folders = {jars.get_folder(b"pom", version) for version in ("", "3.3.6", "3.2.4")}
    assert len(folders) == 3 and jars.get_folder(b"pom", "") != jars.get_folder(b"other", "")


def test_each_python_and_list_of_packages_has_an_environment_of_its_own() -> None:
    texts = [("torch==1", "numpy==1"), ("torch==2", "numpy==1"), ("torch==1", "numpy==2"), ("torch==1", "numpy==1")]
    keys = {environments.get_key(python, *text) for python in ("3.12", "3.13") for text in texts}
    assert len(keys) == 6


def test_an_environment_leaves_disk_for_other_work() -> None:
    environments.check_disk(17 << 30, gigabytes=2)
    with pytest.raises(environments.MissingEnvironmentError, match="16 GiB of disk are free; the environment takes 2"):
        environments.check_disk(16 << 30, gigabytes=2)


def test_a_report_has_its_counts_and_most_frequent_failure() -> None:
    assert results.read_report(REPORT) == Counts(passed=2, failed=4, skipped=1, reason="ImportError: no on_kill")


@pytest.mark.parametrize(
    ("status", "report", "output", "reason"),
    [
        (1, REPORT, "", "ImportError: no on_kill"),
        (2, "", "E   ImportError: no on_kill\nno tests ran\n", "ImportError: no on_kill"),
        (5, "<testsuite/>", "no tests ran\n", "no tests ran"),
        (0, "<testsuite/>", "no tests ran\n", "no tests ran"),
        (1, "<testsuite><testcase/></testsuite>", "error: ended after 20 minutes\n", "error: ended after 20 minutes"),
        (1, "", "", "no output"),
    ],
)
def test_only_tests_that_ran_to_their_end_pass(status: int, report: str, output: str, reason: str) -> None:
    result = results.build_result("pytest", "2026-11-24", 60, status, report, output)
    assert (result.status, result.reason) == ("failed", reason)


def test_tests_without_a_failure_pass() -> None:
    result = results.build_result("pytest", "2026-11-24", 60, 0, "<testsuite><testcase/></testsuite>", "1 passed")
    assert (result.status, result.passed, result.reason) == ("passed", 1, "")


def test_a_reason_is_one_short_line() -> None:
    assert results.summarize("first\n" + "word " * 100 + "\n") == ("word " * 100)[: results.LENGTH - 3] + "..."


def test_a_failure_of_uv_is_told_without_warnings_and_its_tree() -> None:
    output = "warning: a shim failed\n  × No solution found:\n  ╰─▶ Because a needs\n      pandas<3, b cannot.\n"
    assert environments.summarize_uv(output) == "No solution found: Because a needs pandas<3, b cannot."


def test_results_are_read_as_they_were_written() -> None:
    recorded = {"hadoop-3.3.6": PASSED, "airflow-3.2.2": FAILED, "python-3.13": NOT_RUN}
    assert results.load(results.dump(recorded)) == recorded


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (PASSED, "passed 12"),
        (FAILED, "**failed** 2 of 12: `'a \\| b' is wrong`"),
        (NOT_RUN, "not run: `No interpreter found for Python 3.9`"),
    ],
)
def test_a_result_is_described_in_a_line(result: Result, text: str) -> None:
    assert page.describe(result) == text


def test_a_row_without_a_result_is_not_run_yet() -> None:
    text = page.render([Row("torch", "2.6.0", ()), Row("torch", "2.10.0", ())], {"torch-2.10.0": PASSED})
    assert "| 2.6.0 | not run yet | - | - |" in text
    assert "| 2.10.0 | passed 12 | 1.5 | 2026-11-24 |" in text


def test_each_command_is_on_the_page_once_with_the_versions_that_ran_it() -> None:
    other = replace(PASSED, command="pytest -q tests/b")
    versions = ("1.0", "1.1", "1.2")
    recorded = {"torch-1.0": PASSED, "torch-1.1": other, "torch-1.2": PASSED}
    text = page.render([Row("torch", version, ()) for version in versions], recorded)
    assert "\n1.0, 1.2: `pytest -q tests/a`\n\n1.1: `pytest -q tests/b`\n" in text


def test_the_page_has_the_recorded_results() -> None:
    assert matrix.PAGE.read_text() == page.render(ROWS, results.load(matrix.RESULTS.read_text()))
