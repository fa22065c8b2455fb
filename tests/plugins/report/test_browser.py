"""The report as a reader sees it, in Chromium."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from tests.plugins.browser_views import VIEWS, View
from tests.plugins.evaluations import evaluation, scores
from tests.plugins.report import example
from trainyard.report import render
from trainyard.schemas.evaluation import Example, Scores

SHOWN_TIPS = """
const isShown = (tip) => tip.style.opacity !== "0" && tip.style.visibility !== "hidden" && tip.textContent;
const tips = [...document.querySelectorAll(".training .chart > div:last-child")];
return tips.filter(isShown).map((tip) => tip.textContent);
"""
FIND_EMPTY_ROWS = """
const chart = document.getElementById("timeline-chart");
const rows = JSON.parse(chart.nextElementSibling.textContent).rows;
const copy = Object.assign(document.createElement("canvas"), { width: chart.clientWidth, height: chart.clientHeight });
const context = copy.getContext("2d", { willReadFrequently: true });
context.drawImage(chart.querySelector("canvas"), 0, 0);
const band = (chart.clientHeight - 54) / rows.length;
const pixels = (at) => context.getImageData(chart.clientWidth * 0.7, 6 + band * at, 40, band).data;
const isEmpty = (at) => pixels(at).every((value) => value === 0);
return rows.filter((row, at) => isEmpty(at)).map((row) => row.label).filter((label) => !label.startsWith("export"));
"""
"""The rows of the timeline without a bar in its right half, where only the training runs."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the report of the example run, whose prediction has failed."""
    folder = tmp_path_factory.mktemp("report")
    records = example.build_records(str(folder))
    matrix = [[21, 0, 1], [0, 22, 0], [2, 0, 18]]
    curve = [[0.0, 0.0], [0.1, 0.9], [1.0, 1.0]]
    stored = evaluation(
        Scores(**scores(f"{folder}/model", "f" * 64, accuracy=0.9, confusion_matrix=matrix)),
        examples=(Example(loss=3.2, label=1, prediction={"digit": 0}, row={"id": "0930"}),),
        curves={"ROC of 0": curve, "ROC of 1": curve, "calibration": curve},
    )  # fmt: skip
    stored.save()
    error = "Worker 1 on node2 ran out of memory; set memory='8g'."
    records = [
        example.change_record(record, {"evaluation": stored.uri})
        if record.job == "evaluate"
        else example.change_record(record, status="failed", error=error)
        if record.job == "predict"
        else record
        for record in records
    ]
    path = folder / "report.html"
    path.write_text(render.render_page(records, example.build_trace(), example.build_usages(records)))
    return path.as_uri()


@pytest.mark.parametrize(("scheme", "width"), VIEWS)
def test_a_reader_can_read_all_of_it(browser: Any, report: str, tmp_path: Path, scheme: str, width: int) -> None:
    view = View(browser, scheme, width)
    view.open(report)
    view.save("report", tmp_path)
    view.assert_focus_visible()
    for summary in browser.find_elements(By.TAG_NAME, "summary"):
        summary.click()
    view.assert_readable()


def test_the_timeline_zooms_from_the_run_to_a_step_by_buttons_and_keys(browser: Any, report: str) -> None:
    View(browser, "light", 1280).open(report)
    buttons = {button.text: button for button in browser.find_elements(By.CSS_SELECTOR, "#timeline button")}

    def pressed() -> list[str]:
        return [text for text, button in buttons.items() if button.get_attribute("aria-pressed") == "true"]

    assert pressed() == ["Whole run"]
    buttons["train: steps of the last epoch"].click()
    assert pressed() == ["train: steps of the last epoch"]
    chart = View(browser, "light", 1280).focus("#timeline-chart")
    for key, shown in ((Keys.HOME, ["Whole run"]), ("+", []), (Keys.ARROW_RIGHT, []), ("-", ["Whole run"])):
        chart.send_keys(key)
        assert pressed() == shown, key


def test_the_crosshair_of_all_curves_moves_by_keys(browser: Any, report: str) -> None:
    view = View(browser, "light", 1280)
    view.open(report)
    chart = view.focus(".training .chart")
    chart.send_keys(Keys.HOME)
    chart.send_keys(Keys.ARROW_RIGHT * 4)
    charts = browser.find_elements(By.CSS_SELECTOR, ".training .chart")
    WebDriverWait(browser, 10).until(lambda page: len(page.execute_script(SHOWN_TIPS)) == len(charts))
    assert all("epoch 5 (best)" in tip for tip in browser.execute_script(SHOWN_TIPS))


def test_a_large_report_is_small_and_complete(browser: Any, tmp_path: Path) -> None:
    trace = example.build_trace(epochs=100, steps=18, workers=8)
    spans = sum(event["ph"] == "X" for event in trace)
    assert spans > 85_000
    path = tmp_path / "report.html"
    path.write_text(render.render_page(example.build_records(str(tmp_path)), trace))
    assert path.stat().st_size < 5 * 2**20
    view = View(browser, "light", 1280)
    view.open(path.as_uri())
    view.assert_readable()
    assert browser.execute_script(FIND_EMPTY_ROWS) == ["train · driver", "evaluate · driver", "predict · driver"]
    options = browser.find_element(By.CSS_SELECTOR, "#timeline-chart + script").get_attribute("textContent")
    assert sum(len(row["names"]) for row in json.loads(options)["rows"]) == spans
