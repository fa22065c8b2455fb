"""The output of several workers is one line at a time, with the rank in front."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

RUN = """
import os, sys
from trainyard.trainer.group.output import prefix_output

print("before", flush=True)
with prefix_output(3):
{}
print("after", flush=True)
"""


def run(body: str, *, status: int = 0) -> list[str]:
    """Run a program with `body` as what a worker of rank 3 does, and return its output."""
    program = RUN.format(textwrap.indent(textwrap.dedent(body), "    "))
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        env=os.environ | {"PYTHONPATH": "plugins:."},
    )  # fmt: skip
    assert done.returncode == status, done.stdout
    return done.stdout.splitlines()


def test_every_line_has_the_rank_in_front() -> None:
    assert run("print('one\\ntwo')") == ["before", "[rank3]: one", "[rank3]: two", "after"]


def test_output_of_both_streams_keeps_its_order() -> None:
    body = "for n in range(3): print(n, flush=True); print(-n, file=sys.stderr, flush=True)"
    assert run(body) == ["before", *(f"[rank3]: {n}" for n in (0, 0, 1, -1, 2, -2)), "after"]


def test_what_native_code_and_child_processes_write_is_prefixed_too() -> None:
    lines = run("os.write(1, b'native'); os.write(2, b' line\\n'); os.system('echo child')")
    assert lines == ["before", "[rank3]: native line", "[rank3]: child", "after"]


def test_a_last_line_without_an_end_is_kept() -> None:
    assert run("os.write(1, b'no end')") == ["before", "[rank3]: no end", "after"]


def test_a_progress_bar_is_a_line_for_each_update() -> None:
    assert run("sys.stderr.write('10%\\r20%\\r\\n')") == ["before", "[rank3]: 10%", "[rank3]: 20%", "after"]


def test_output_without_an_end_of_line_is_cut_and_not_kept_in_memory() -> None:
    lines = run("print('x' * (3 << 20))")[1:-1]
    assert len(lines) > 1 and sum(len(line.removeprefix("[rank3]: ")) for line in lines) == 3 << 20


def test_a_long_line_is_one_line() -> None:
    assert run("print('x' * 300_000)") == ["before", "[rank3]: " + "x" * 300_000, "after"]


@pytest.mark.parametrize(("end", "status"), [("os._exit(3)", 3), ("os.kill(os.getpid(), 9)", -9)])
def test_the_last_output_of_a_worker_that_crashes_is_kept(end: str, status: int) -> None:
    assert run(f"os.write(2, b'terminate called\\n'); {end}", status=status) == ["before", "[rank3]: terminate called"]


def test_an_exception_restores_the_streams() -> None:
    body = "try:\n    with prefix_output(4): raise ValueError\nexcept ValueError: print('raised')"
    assert run(body) == ["before", "[rank3]: raised", "after"]


def test_a_process_that_the_script_leaves_behind_delays_nothing() -> None:
    """It has the pipe open for longer than any test may take."""
    body = "import subprocess\nchild = subprocess.Popen(['sleep', '600'], stdin=subprocess.DEVNULL)\nprint(child.pid)"
    program = RUN.format(textwrap.indent(body, "    "))
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"PYTHONPATH": "plugins:."},
    )  # fmt: skip
    assert process.stdout
    lines = [process.stdout.readline().rstrip() for _ in range(3)]
    os.kill(int(lines[1].removeprefix("[rank3]: ")), 9)
    assert (lines[0], lines[2]) == ("before", "after")
    assert process.wait() == 0


PROGRAM = """
import sys
from pyspark.sql import SparkSession
from tests.trainer.group.test_unchanged_scripts import run

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
run(spark, __import__("pathlib").Path(sys.argv[1]), "chatty")
"""


@pytest.mark.full
@pytest.mark.spark
def test_the_lines_of_two_workers_are_not_printed_into_each_other(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": "plugins:.", "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    lines = done.stdout.splitlines()
    for rank in (0, 1):
        own = [line.removeprefix(f"[rank{rank}]: ") for line in lines if line.startswith(f"[rank{rank}]: ")]
        assert own == [f"line {n} of rank {rank}" for n in range(200)] + [f"from Python {rank}", "from a child"]
    assert [line for line in lines if "of rank" in line and not line.startswith("[rank")] == []
