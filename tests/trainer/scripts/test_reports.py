"""Reports of scripts: what counts as one, and what becomes of them."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.scripts.serving import Worker
from trainyard.report.curves import read_points
from trainyard.schemas.runs import events as event_log
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.runs.worker_progress import ScriptProgress
from trainyard.trainer import report_metrics, store_checkpoints
from trainyard.trainer.measuring.phases import CurrentPhase
from trainyard.trainer.scripts import metrics, reports
from trainyard.trainer.scripts.metrics import MetricRecorder
from trainyard.trainer.scripts.reports import Report, ReportReader, parse


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReportReader]:
    with ReportReader(tmp_path / "reports", {}) as reader:
        monkeypatch.setenv("TRAINYARD_REPORTS", str(tmp_path / "reports"))
        yield reader


def test_a_report_has_numbers_and_counts(reader: ReportReader) -> None:
    report_metrics(epoch=2, step=7, loss=np.float32(0.5), rows=3)
    report_metrics(loss=float("nan"))
    store_checkpoints()  # where nothing is stored, it shows that the script makes progress
    first, second, third = reader.read()
    assert first == Report(2, 7, {"loss": 0.5, "rows": 3.0})
    assert math.isnan(second.metrics["loss"])
    assert third == Report()
    assert reader.metrics == {"loss": second.metrics["loss"], "rows": 3.0}


def test_any_program_reports_by_a_line_of_json(reader: ReportReader, tmp_path: Path) -> None:
    subprocess.run(["sh", "-c", """echo '{"epoch": 1, "loss": 2}' > "$TRAINYARD_REPORTS" """], check=True)
    assert list(reader.read()) == [Report(1, None, {"loss": 2.0})]


def test_a_report_outside_of_a_worker_does_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report_metrics(loss=1)
    store_checkpoints()
    os.mkfifo(tmp_path / "reports")
    monkeypatch.setenv("TRAINYARD_REPORTS", str(tmp_path / "reports"))
    report_metrics(loss=1)  # of a worker that has ended: nobody reads the pipe


@pytest.mark.parametrize(
    ("counts", "error"),
    [
        ({"epoch": 0}, "epoch=0: epochs count from 1; add 1 to those that count from 0"),
        ({"step": -1}, "step=-1 is negative"),
    ],
)
def test_a_count_that_is_none_is_refused_in_the_call(counts: dict[str, int], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        report_metrics(**counts, loss=1)


def test_a_report_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a report of 5,0\d\d bytes is too long; report fewer metrics"):
        report_metrics(**{"x" * 5000: 1})


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"loss: 1", "a report is not JSON: 'loss: 1'"),
        (b"[1]", r"a report is not a JSON object: '\[1\]'"),
        (b'{"loss": "1"}', "a report has 'loss': '1', which is no metric"),
        (b'{"loss": true}', "a report has 'loss': True, which is no metric"),
        (b'{"a\\nb": 1}', r"a report has 'a\\nb': 1, which is no metric"),
        (b'{"epoch": 0}', "a report has epoch 0, which is no count"),
        (b'{"epoch": 1.5}', "a report has epoch 1.5, which is no count"),
        (b'{"step": -1}', "a report has step -1, which is no count"),
        (b'{"step": 1e400}', "a report has step inf, which is no count"),
        (b"[" * 4000, "a report is not JSON"),
        (b'{"loss": ' + b" " * 5000 + b"1}", "a report has more than 4096 bytes"),
        (b"\xff", "a report is not JSON: '\ufffd'"),
    ],
)
def test_what_is_no_report_is_named(line: bytes, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        parse(line)


def test_a_number_too_large_for_a_float_is_infinite() -> None:
    assert parse(b'{"loss": 1' + b"0" * 400 + b"}").metrics == {"loss": math.inf}


def write_lines(folder: Path, *lines: str) -> None:
    (folder / "reports").write_text("".join(f"{line}\n" for line in lines))


def test_lines_that_are_no_reports_are_left_out_and_named_once(
    reader: ReportReader, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_lines(tmp_path, "hello", '{"loss": 1}', "", "world", '{"loss": 2}')
    assert [report.metrics for report in reader.read()] == [{"loss": 1.0}, {"loss": 2.0}]
    assert capfd.readouterr().out == "a report is not JSON: 'hello'. Such lines are left out.\n"


def test_a_report_arrives_when_its_line_ends(reader: ReportReader, tmp_path: Path) -> None:
    for text in ('{"lo', 'ss": 1}\n{"loss": 2'):
        (tmp_path / "reports").write_text(text)
        seen = [report.metrics for report in reader.read()]
    assert seen == [{"loss": 1.0}]


def test_a_line_without_an_end_takes_no_memory(reader: ReportReader, tmp_path: Path) -> None:
    for _ in range(10):
        (tmp_path / "reports").write_text("x" * 60_000)
        assert list(reader.read()) == []
    assert len(reader._rest) == reports.MAX_BYTES
    write_lines(tmp_path, "", '{"loss": 1}')
    assert [report.metrics for report in reader.read()] == [{"loss": 1.0}]


def test_names_beyond_the_limit_are_left_out(
    reader: ReportReader, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for number in range(reports.MAX_METRICS + 2):
        report_metrics(**{f"m{number}": number})
    assert [len(report.metrics) for report in reader.read()] == [1] * reports.MAX_METRICS + [0, 0]
    assert list(reader.metrics) == [f"m{number}" for number in range(reports.MAX_METRICS)]
    assert capfd.readouterr().out == "more than 100 metrics are reported; 'm100' is left out.\n"


def test_a_script_that_reports_without_a_pause_does_not_hold_its_worker(
    reader: ReportReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "_READ_BYTES", 16)
    write_lines(tmp_path, *['{"loss": 1234}'] * 100)
    assert sum(1 for _ in reader.read()) < 20


def test_the_last_value_of_each_metric_of_an_epoch_is_a_point_of_the_curves(tmp_path: Path) -> None:
    events, current = EventLog(str(tmp_path), "train", "worker 0"), CurrentPhase(is_judged=False)
    recorder = MetricRecorder(events, current, is_main=True)
    for report in (
        Report(1, 10, {"loss": 3.0}),
        Report(None, 11, {"rate": 0.1}),
        Report(1, 20, {"loss": 2.0}),
        Report(1, None, {"accuracy": 0.5}),
        Report(2, 5, {"loss": math.inf}),
    ):
        recorder.record(report)
    recorder.end()
    events.close()
    first, second = read_points(event_log.read(str(tmp_path)))
    assert first == {"epoch": 1, "loss": 2.0, "accuracy": 0.5}
    assert second["epoch"] == 2 and math.isnan(second["loss"])
    assert (current.epoch, current.step, current.is_judged) == (1, 5, True)
    assert current.training == ScriptProgress(epoch=2, step=5, metrics={"loss": math.inf})


@pytest.mark.parametrize(
    ("reported", "points"),
    [
        ([Report(None, None, {"loss": 3.0}), Report(None, None, {"loss": 2.0})], [(1, 3.0), (2, 2.0)]),
        ([Report(None, 10, {"loss": 3.0}), Report(None, 20, {"loss": 2.0})], [(10, 3.0), (20, 2.0)]),
        ([Report(None, 10, {"loss": 3.0}), Report(None, 10, {"loss": 2.0})], [(10, 2.0)]),
    ],
    ids=["call", "step", "same step"],
)
def test_metrics_without_an_epoch_are_points_of_curves_by_step_or_call(
    tmp_path: Path, reported: list[Report], points: list[tuple[int, float]]
) -> None:
    assert record(tmp_path, reported) == [{"step": step, "loss": loss} for step, loss in points]


def test_a_long_curve_has_fewer_points_the_longer_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "FULL_POINTS", 4)
    steps = [point["step"] for point in record(tmp_path, [Report(None, step, {"loss": 1.0}) for step in range(20)])]
    assert steps == [0, 1, 2, 3, 4, 6, 9, 12, 19]


def test_a_metric_that_is_rare_keeps_its_points_beside_one_of_each_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "FULL_POINTS", 4)
    every = [Report(None, step, {"loss": 1.0} | ({"rare": 2.0} if step % 25 == 24 else {})) for step in range(100)]
    points = record(tmp_path, every)
    assert [point["step"] for point in points if "rare" in point] == [24, 49, 74, 99]
    assert len(points) < 40


def record(folder: Path, reported: list[Report]) -> list[dict[str, float]]:
    """Return the points of the curves of a script that has reported this."""
    with EventLog(str(folder), "train", "worker 0") as events:
        recorder = MetricRecorder(events, CurrentPhase(), is_main=True)
        for report in reported:
            recorder.record(report)
        recorder.end()
    return read_points(event_log.read(str(folder)))


def test_a_script_that_has_ended_is_judged_no_more(tmp_path: Path) -> None:
    """Its last report may be read after its end, and storing its last files may take long."""
    worker = Worker(str(tmp_path / "checkpoints"), tmp_path / "worker", current=(current := CurrentPhase()))
    with worker.serve():
        worker.call(lambda: report_metrics(epoch=3, loss=1))
        worker.session.finish(take_last=True, seconds=30)
    assert (current.epoch, current.is_judged) == (2, False)


def test_the_reports_of_other_ranks_show_that_they_make_progress(tmp_path: Path) -> None:
    events, current = EventLog(str(tmp_path), "train", "worker 1"), CurrentPhase(is_judged=False)
    recorder = MetricRecorder(events, current, is_main=False)
    entered = current.entered
    recorder.record(Report(3, 9, {"loss": 1.0}))
    recorder.end()
    events.close()
    assert (current.epoch, current.step, current.is_judged) == (2, 9, True)
    assert current.entered > entered and current.training is None
    assert read_points(event_log.read(str(tmp_path))) == []


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (ScriptProgress(epoch=3, step=120, metrics={"loss": 0.31234}), "epoch 3 step 120: loss 0.3123"),
        (ScriptProgress(step=7), "step 7"),
        (ScriptProgress(metrics={"loss": 1, "accuracy": 0.5}), "loss 1, accuracy 0.5"),
        (ScriptProgress(), "running"),
    ],
)
def test_the_progress_of_a_script_is_a_line(progress: ScriptProgress, text: str) -> None:
    assert progress.describe() == text


def test_the_functions_import_the_standard_library_alone() -> None:
    """A script process would wait for anything else."""
    code = "import sys; from trainyard.trainer import report_metrics, store_checkpoints; report_metrics(loss=1); "
    code += "print(sorted({'torch', 'pydantic', 'fsspec', 'pyspark'} & set(sys.modules)))"
    environ = os.environ | {"PYTHONPATH": "plugins"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
