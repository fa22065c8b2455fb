"""The progress bar on a real pseudo terminal, whose screen is an emulated one."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.plugins.terminals import Terminal
from tests.trainer import datasets

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
COLUMNS = 100
PREAMBLE = """
import logging, sys
from trainyard.progress_bar import ProgressBar
from trainyard.schemas.runs.worker_progress import TrainingProgress

def read():
    return TrainingProgress(
        epoch=1, epochs=2, step=3, steps=4, loss=0.25, rows_per_second=1200.0, seconds_left=65.0
    )

def wait():
    sys.stdin.readline()
"""
BAR = "epoch 1/2 step 3/4: loss 0.25, 1,200 rows/s, 1 min 5 s left"


def run(program: str, *, term: str = "xterm", stdout: int | None = None) -> Terminal:
    """Run a program on a terminal, with the preamble."""
    environment = os.environ | {"TERM": term, "PYTHONPATH": str(ROOT / "plugins")}
    return Terminal([sys.executable, "-c", PREAMBLE + textwrap.dedent(program)], environment, COLUMNS, stdout)


def shows_bar(lines: list[str]) -> bool:
    return bool(lines) and BAR in lines[-1]


def test_the_bar_is_shown_while_the_body_runs_and_removed_at_its_end() -> None:
    terminal = run("with ProgressBar(read): wait()")
    terminal.read_until(shows_bar)
    assert "━" in terminal.lines[-1]
    terminal.resume()
    assert terminal.end() == []


def test_lines_are_whole_and_above_the_bar() -> None:
    terminal = run(
        """
        logging.basicConfig(format="%(message)s", stream=sys.stderr)
        with ProgressBar(read) as bar:
            wait()
            for number in range(50):
                print(f"printed {number}")
            print("a long line " + 20 * "0123456789")
            print("to standard error", file=sys.stderr)
            logging.warning("from a handler")
            write = sys.__stdout__.write
            bar.above(lambda line: write(line + "\\n"))("from a writer of its own")
            print("in ", end="")
            print("parts")
            print("[red]not markup[/red]")
            wait()
        """
    )
    terminal.read_until(shows_bar)
    terminal.resume()
    terminal.read_until(lambda lines: shows_bar(lines) and "[red]not markup[/red]" in lines)
    terminal.resume()
    long = "a long line " + 20 * "0123456789"
    assert terminal.end() == [
        *(f"printed {number}" for number in range(50)),
        long[:COLUMNS], long[COLUMNS : 2 * COLUMNS], long[2 * COLUMNS :],
        "to standard error", "from a handler", "from a writer of its own", "in parts", "[red]not markup[/red]",
    ]  # fmt: skip


def test_a_question_is_shown_before_its_answer() -> None:
    terminal = run(
        """
        with ProgressBar(read):
            wait()
            print("name? ", end="", flush=True)
            wait()
        """
    )
    terminal.read_until(shows_bar)
    terminal.resume()
    terminal.read_until(lambda lines: any("name?" in line for line in lines))
    terminal.resume()
    terminal.end()


def test_lines_of_several_threads_are_whole() -> None:
    terminal = run(
        """
        import threading

        def write(name):
            for number in range(200):
                sys.stdout.write(f"{name} {number}\\n")

        with ProgressBar(read):
            threads = [threading.Thread(target=write, args=(name,)) for name in "ab"]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
        """
    )
    assert sorted(terminal.end()) == sorted(f"{name} {number}" for name in "ab" for number in range(200))


def test_standard_output_that_is_a_pipe_gets_the_lines_alone() -> None:
    read_end, write_end = os.pipe()
    terminal = run("with ProgressBar(read): wait(); print('a result')", stdout=write_end)
    os.close(write_end)
    terminal.read_until(shows_bar)
    terminal.resume()
    terminal.end()
    with os.fdopen(read_end) as output:
        assert output.read() == "a result\n"


def test_nothing_is_written_to_a_pipe() -> None:
    program = PREAMBLE + "with ProgressBar(read, 0): print('a result')"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "plugins")}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("a result\n", "")


def test_a_standard_error_of_another_kind_shows_no_bar() -> None:
    terminal = run(
        """
        class Stream:
            def write(self, text): pass
            def flush(self): pass

        sys.stderr = Stream()
        with ProgressBar(read): print("a result")
        """
    )
    assert terminal.end() == ["a result"]


def test_a_terminal_that_cannot_move_its_cursor_shows_no_bar() -> None:
    assert run("with ProgressBar(read): print('a result')", term="dumb").end() == ["a result"]


def test_an_error_of_reading_ends_the_bar_and_nothing_else() -> None:
    terminal = run(
        """
        import threading
        progress, failed = read(), threading.Event()

        def read_twice():
            if sys.stdin.readline() == "\\n":
                failed.set()
                raise OSError("the storage is away")
            return progress

        with ProgressBar(read_twice) as bar:
            failed.wait()
            while bar.is_active:
                pass
            print("the training runs on")
        """
    )
    terminal.resume()
    assert terminal.end() == ["the training runs on"]


def test_a_child_process_writes_without_the_bar() -> None:
    terminal = run(
        """
        import os
        with ProgressBar(read) as bar:
            wait()
            bar._lock.acquire()  # as the drawing thread may have it
            if os.fork() == 0:
                print("from the child", flush=True)
                os._exit(0)
            bar._lock.release()
            os.wait()
            wait()
        """
    )
    terminal.read_until(shows_bar)
    terminal.resume()
    terminal.read_until(lambda lines: any("from the child" in line for line in lines))
    terminal.resume()
    terminal.end()


def test_a_bar_is_not_shown_before_there_is_progress() -> None:
    terminal = run("with ProgressBar(lambda: None): print('set up')")
    assert terminal.end() == ["set up"]


WAITING_RECIPE = """
import sys
from dataclasses import replace
from torch import nn
from tests.trainer.recipes import linear
from trainyard.trainer import Recipe

class Loss(nn.CrossEntropyLoss):
    batches = 0

    def forward(self, output, label):
        self.batches += 1
        if self.batches == 5:
            print("loss of the fifth batch")
            sys.stdin.readline()
        return super().forward(output, label)

def waiting() -> Recipe:
    return replace(linear(), loss=Loss())
"""


@pytest.mark.full
def test_fit_shows_the_bar_below_its_own_lines(tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(WAITING_RECIPE)
    dataset = datasets.write(tmp_path / "dataset", {"train": datasets.blobs(96)})
    terminal = run(
        f"""
        sys.path[:0] = [{str(ROOT)!r}, {str(tmp_path)!r}]
        from trainyard.trainer import fit

        fit("waiting:waiting", dataset={dataset!r}, model={str(tmp_path / "model")!r}, epochs=3, batch_size=32)
        """
    )
    terminal.read_until(lambda lines: bool(lines) and "━ epoch 2/3 step 1/3: loss " in lines[-1])
    terminal.resume()
    lines = [line for line in terminal.end() if " step " not in line]  # printed where steps take seconds
    first, printed, *others = lines
    assert first.startswith("epoch 1/3: loss ")
    assert printed == "loss of the fifth batch"
    assert [line.partition(":")[0] for line in others] == ["epoch 2/3", "epoch 3/3"]
