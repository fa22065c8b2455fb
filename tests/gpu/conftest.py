"""Run each test on a CPU and on a GPU. Without a GPU, the summary says which half was not run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.gpu import stand_ins

stand_ins.install()

from tests.trainer import datasets  # noqa: E402  needs the stand-ins

DEVICES = ("cpu", "cuda")
FOLDER = Path(__file__).parent
NOT_RUN = pytest.StashKey[int]()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marks = [mark for mark in metafunc.definition.iter_markers("parametrize") if "device" in mark.args[0]]
    if "device" in metafunc.fixturenames and not marks:
        metafunc.parametrize("device", DEVICES, indirect=True)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    needs_gpu = [item for item in items if FOLDER in item.path.parents and _get_device(item) == "cuda"]
    config.stash[NOT_RUN] = len(needs_gpu)
    config.hook.pytest_deselected(items=needs_gpu)
    items[:] = [item for item in items if item not in needs_gpu]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if count := terminalreporter.config.stash.get(NOT_RUN, 0):
        terminalreporter.write_line(
            f"NOT RUN: {count} tests of tests/gpu, because there is no CUDA device", yellow=True
        )
    elif torch.cuda.is_available():
        devices = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
        terminalreporter.write_line(f"CUDA devices: {', '.join(devices)}; torch {torch.__version__}")


def _get_device(item: pytest.Item) -> str | None:
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("device") if callspec else None


@pytest.fixture
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The type of the device; on a machine with a GPU, the product does not see it in a test on the CPU."""
    if request.param == "cpu":
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return str(request.param)


@pytest.fixture(scope="session")
def batches(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A dataset of blobs."""
    folder = tmp_path_factory.mktemp("data") / "dataset"
    return datasets.write(folder, {"train": datasets.blobs(500), "validation": datasets.blobs(101, seed=1)})
