"""A script is a process of its own, in a copy of the code that it was shipped with."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from trainyard.errors import TrainyardError
from trainyard.schemas.specs.script import ScriptSpec
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.trainer.connections.channel import DriverAddress
from trainyard.trainer.group import script_process
from trainyard.trainer.group.outcome import Outcome
from trainyard.trainer.group.script import build_environment
from trainyard.trainer.group.script_main import Start

DRIVER = DriverAddress("127.0.0.1", 1, b"")


@pytest.fixture
def ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that ships files as a job does, in a zip that modules are imported from."""

    def write(**files: str) -> None:
        archive = tmp_path / "code.zip"
        with zipfile.ZipFile(archive, "w") as packed:
            packed.writestr("job/__init__.py", "")
            for name, text in files.items():
                packed.writestr(f"job/{name.replace('__', '.')}", text)
        monkeypatch.delitem(sys.modules, "job", raising=False)  # that of another test
        monkeypatch.syspath_prepend(str(archive))

    return write


def run(
    script: str = "job.script", *arguments: str, cwd: str | None = None,
    should_end: Callable[[], bool] = lambda: False, grace_seconds: float = 30, variables: dict[str, str] | None = None,
    cores: int = 1,
) -> Outcome | None:  # fmt: skip
    """Run a script as the only worker, and return its failure."""
    with script_process.run(script, cwd, cores, grace_seconds) as process:
        process.start(Start(script, arguments, variables or {"RANK": "0"}, 0, 1, DRIVER))
        process.wait(should_end)
        return process.find_failure("")


@pytest.mark.slow
def test_a_script_has_as_many_threads_as_its_worker_has_cores(ship: Callable[..., None]) -> None:
    """YARN may count more cores than a machine has, which torch would not use by itself."""
    cores = 2 * (os.cpu_count() or 1)
    ship(script__py=f"import torch; assert torch.get_num_threads() == {cores}, torch.get_num_threads()")
    assert run(cores=cores) is None


@pytest.mark.slow
def test_a_script_reads_files_and_starts_programs_beside_it(ship: Callable[..., None], tmp_path: Path) -> None:
    ship(
        script__py="import subprocess, sys; from pathlib import Path; import neighbor\n"
        "assert (Path(__file__).parent / 'conf.yaml').read_text() == open('conf.yaml').read() == 'rate: 1'\n"
        "subprocess.run([sys.executable, 'other.py', sys.argv[1]], check=True)",
        conf__yaml="rate: 1",
        neighbor__py="",
        other__py="import sys, neighbor, job.neighbor; open(sys.argv[1], 'w').write('written')",
    )
    assert run("job.script", str(tmp_path / "out")) is None
    assert (tmp_path / "out").read_text() == "written"


@pytest.mark.slow
def test_a_script_has_its_variables_folder_and_name(ship: Callable[..., None], tmp_path: Path) -> None:
    text = (
        "import os, sys; print(os.environ['RANK'], os.environ['OMP_NUM_THREADS'], os.getcwd(), *sys.argv[1:], __name__,"
    )
    ship(**{"my-script__py": text + f" file=open({str(tmp_path / 'out')!r}, 'w'))"})
    assert run("job.my-script", "a", cwd=str(tmp_path)) is None
    assert (tmp_path / "out").read_text() == f"0 1 {tmp_path} a __main__\n"
    with pytest.raises(TrainyardError, match=r"cwd='nowhere' is no folder on this node"):
        run("job.my-script", cwd="nowhere")


@pytest.mark.slow
def test_what_a_script_leaves_to_its_end_is_done(ship: Callable[..., None], tmp_path: Path) -> None:
    ship(
        script__py=f"""
import atexit, threading, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

folder = Path({str(tmp_path)!r})

def write(name):
    time.sleep(0.3)
    (folder / name).touch()

atexit.register(write, "atexit")
threading.Thread(target=write, args=("thread",)).start()
ThreadPoolExecutor().submit(write, "executor")
"""
    )
    assert run() is None
    assert {"atexit", "thread", "executor"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "ended", "error"),
    [
        ("import os; os._exit(0)", None, ""),
        ("import sys; sys.exit()", None, ""),
        ("import os; os._exit(3)", "failed", "job.script ended with exit status 3; its output is in the log"),
        ("import sys; sys.exit('no data')", "failed", "job.script ended: no data"),
        ("raise ValueError('bad')", "failed", "ValueError: bad"),
        ("import os; os.kill(os.getpid(), 11)", "lost", "ended without an error: its process was killed by SIGSEGV"),
    ],
)
def test_an_exit_status_other_than_0_is_a_failure(
    ship: Callable[..., None], text: str, ended: str | None, error: str
) -> None:
    ship(script__py=text)
    failure = run()
    assert (failure.ended if failure else None) == ended
    assert failure is None or error in str(failure.error)


HANDLER = """
import signal, sys, time
from pathlib import Path

def end(*_):
    time.sleep({seconds})
    Path({file!r}).write_text("ended")
    sys.exit()

signal.signal(signal.SIGTERM, end)
Path({file!r}).write_text("started")
while True:
    time.sleep(0.05)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "grace_seconds", "content"), [(0.3, 30, "ended"), (30, 0.3, "started")])
def test_a_script_that_has_to_end_gets_sigterm_and_some_time(
    ship: Callable[..., None], tmp_path: Path, seconds: float, grace_seconds: float, content: str
) -> None:
    file = tmp_path / "state"
    ship(script__py=HANDLER.format(seconds=seconds, file=str(file)))
    run(should_end=lambda: file.exists() and file.read_text() == "started", grace_seconds=grace_seconds)
    assert file.read_text() == content


HANDLED = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit({end})); open('ready', 'w'); time.sleep(60)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "is_complete"),
    [
        ("", True),
        ("import sys; sys.exit(1)", False),
        ("raise ValueError", False),
        (HANDLED.format(end="0"), True),
        (HANDLED.format(end="143"), True),
        (HANDLED.format(end="1 / 0"), False),
        ("import time; open('ready', 'w'); time.sleep(60)", False),
    ],
)
def test_the_files_of_a_script_are_complete_if_nothing_interrupted_it(
    ship: Callable[..., None], tmp_path: Path, text: str, is_complete: bool
) -> None:
    """A signal that it does not handle, or an exception, may come while it writes one."""
    ship(script__py=text)
    with script_process.run("job.script", str(tmp_path), 1, 30) as process:
        process.start(Start("job.script", (), {}, 0, 1, DRIVER))
        process.wait((tmp_path / "ready").exists)
        assert process.has_complete_files == is_complete


@pytest.mark.slow
def test_a_script_that_was_stopped_is_lost(ship: Callable[..., None]) -> None:
    """One that continues in time is not."""
    ship(
        script__py="import os, signal, subprocess, sys\n"
        "if sys.argv[1:]:\n    subprocess.Popen(['sh', '-c', f'sleep 0.3; kill -CONT {os.getpid()}'])\n"
        "os.kill(os.getpid(), signal.SIGSTOP)"
    )
    stopped = "the process of job.script was stopped, as by SIGSTOP"
    for arguments, seconds, error in ((("continue",), 120.0, None), ((), 0.1, stopped)):
        with script_process.run("job.script", None, 1, 30) as process:
            process.start(Start("job.script", arguments, {}, 0, 1, DRIVER))
            assert not process.wait(lambda: False, silence_seconds=seconds)
            failure = process.find_failure("")
        assert (failure and failure.ended, failure and failure.error) == (error and "lost", error)


@pytest.mark.slow
def test_a_script_that_is_shipped_alone_and_lacks_a_file_is_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "code.zip", "w") as packed:
        packed.writestr("lonely.py", "open('conf.yaml')")
    monkeypatch.syspath_prepend(str(tmp_path / "code.zip"))
    failure = run("lonely")
    assert failure and failure.error == "FileNotFoundError: [Errno 2] No such file or directory: 'conf.yaml'"
    assert "lonely.py is shipped alone" in str(failure.traceback)
    assert "write script='FOLDER.lonely'" in str(failure.traceback)


def test_a_start_is_handed_over_as_json() -> None:
    start = Start("job.script", ("--rate", "ü"), {"RANK": "1"}, 1, 2, DriverAddress("host", 5, bytes(range(32))))
    assert Start.from_json(start.to_json()) == start


WORKER = """
import sys
from tests.trainer.group.test_script_process import run

sys.path.insert(0, sys.argv[1])
run(grace_seconds=30)
"""


@pytest.mark.slow
def test_a_script_ends_when_its_worker_is_killed(ship: Callable[..., None], tmp_path: Path) -> None:
    file = tmp_path / "state"
    ship(script__py=HANDLER.format(seconds=0, file=str(file)))
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(tmp_path / "code.zip")], env=os.environ | {"PYTHONPATH": "plugins:."}
    )
    wait_for(file.exists)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    wait_for(lambda: file.read_text() == "ended")


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def variables_of_one_worker() -> dict[str, str]:
    """Return the environment of the only worker of a group, whose port is free."""
    key = TaskKey(dag_id="d", run_id="r", task_id="t", directory="/run")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        master = f"127.0.0.1:{free.getsockname()[1]}"
    return build_environment(ScriptSpec(task_key=key, script="job.script"), ["127.0.0.1"], 0, master, cores=1)


@pytest.mark.slow
def test_a_single_worker_may_spawn_a_group_of_its_own(ship: Callable[..., None]) -> None:
    """With torchrun's variable for an agent's store, the processes would wait for one that nobody serves."""
    ship(
        script__py="""
import os
import torch, torch.distributed as dist, torch.multiprocessing as mp

def work(rank):
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2"}
    dist.init_process_group("gloo")
    value = torch.ones(1)
    dist.all_reduce(value)
    assert value == 2
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(work, nprocs=2)
"""
    )
    assert run(variables=variables_of_one_worker()) is None


@pytest.mark.slow
def test_a_single_worker_has_a_process_group_without_a_port(ship: Callable[..., None]) -> None:
    """torch's own store would listen on all addresses, for whoever connects."""
    ship(
        script__py="""
import os, psutil
import torch, torch.distributed as dist

dist.init_process_group("gloo")
assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
dist.all_reduce(torch.ones(1))
port = int(os.environ["MASTER_PORT"])
assert not [each for each in psutil.Process().net_connections() if each.laddr.port == port]
"""
    )
    assert run(variables=variables_of_one_worker()) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "failure"),
    [
        ("raise RuntimeError('bad data')", "RuntimeError: bad data"),
        ("sys.exit('bad data')", "job.script ended: bad data"),
        ("sys.exit(3)", "job.script ended with exit status 3; its output is in the log"),
    ],
)
def test_a_script_that_has_failed_is_the_cause_although_others_end_while_it_cleans_up(
    ship: Callable[..., None], tmp_path: Path, end: str, failure: str
) -> None:
    """Its connections are closed before its failure is reported, and then the group ends because of the others."""
    cleaning, cleaned = tmp_path / "cleaning", tmp_path / "cleaned"
    ship(
        script__py="import atexit, sys, time; from pathlib import Path\n"
        f"clean = lambda: (Path({str(cleaning)!r}).touch(), time.sleep(2), Path({str(cleaned)!r}).touch())\n"
        f"atexit.register(clean)\n{end}"
    )
    with script_process.run("job.script", None, 1, 30) as process:
        process.start(Start("job.script", (), {"RANK": "0"}, 0, 1, DRIVER))
        was_ended = process.wait(cleaning.exists)
        outcome = process.find_failure("")
    assert outcome
    assert (was_ended, outcome.ended, outcome.error) == (False, "failed", failure)
    assert cleaned.exists()


@pytest.mark.slow
def test_a_script_that_is_killed_while_it_cleans_up_has_the_status_that_it_ended_with(
    ship: Callable[..., None], tmp_path: Path
) -> None:
    cleaning = tmp_path / "cleaning"
    ship(
        script__py="import atexit, sys, time; from pathlib import Path\n"
        f"atexit.register(lambda: (Path({str(cleaning)!r}).touch(), time.sleep(60)))\nsys.exit(3)"
    )
    failure = run(should_end=cleaning.exists, grace_seconds=0.5)
    assert failure
    assert (failure.ended, failure.error) == ("failed", "job.script ended with exit status 3; its output is in the log")
