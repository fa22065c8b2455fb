"""What is packed is what jobs import, with all that it requires, as it is installed here."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from trainyard.errors import TrainyardError
from trainyard.jobs.options import requirements
from trainyard.packing.distributions import NEEDED, find_distributions, list_files


def install(folder: Path, name: str, requires: tuple[str, ...] = (), direct_url: str = "") -> None:
    """Write a distribution of one module, as an installer does."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", "Provides-Extra: fast"]
    (info / "METADATA").write_text("\n".join([*lines, *(f"Requires-Dist: {text}" for text in requires)]) + "\n")
    (folder / f"{name}.py").write_text("")
    files = [f"{name}.py,,", f"__pycache__/{name}.cpython-311.pyc,,", f"../../../bin/{name},,"]
    (info / "RECORD").write_text("\n".join(files) + "\n")
    if direct_url:
        (info / "direct_url.json").write_text(direct_url)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed distributions, beside those of this environment."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def names(added: tuple[str, ...] = (), excluded: tuple[str, ...] = ()) -> set[str]:
    return {canonicalize_name(found.name) for found in find_distributions(added, excluded)}


def test_each_module_that_a_job_imports_is_packed() -> None:
    kinds = (requirements.SPARK, requirements.TRAIN, requirements.EVALUATE, requirements.PREDICT, requirements.SCRIPT)
    assert {module for kind in kinds for module in kind.modules} <= set(NEEDED)


@pytest.mark.slow
def test_what_a_distribution_requires_is_packed_too() -> None:
    assert {"pandas", "python-dateutil", "numpy", "torch", "sympy", "pydantic-core"} <= names()


@pytest.mark.slow
def test_airflow_and_spark_are_not_packed() -> None:
    assert not {"apache-airflow", "apache-airflow-core", "pyspark"} & names()


def test_an_excluded_distribution_and_what_it_alone_requires_are_left_out() -> None:
    assert not {"torch", "sympy"} & names(excluded=("Torch", "torchmetrics"))


@pytest.mark.slow
def test_an_excluded_distribution_that_another_one_requires_is_packed() -> None:
    assert "torch" in names(excluded=("torch",)), "torchmetrics requires it"


@pytest.mark.slow
def test_an_extra_adds_what_it_requires(installed: Path) -> None:
    install(installed, "mine", requires=("theirs; extra == 'fast'", "other; python_version < '3'"))
    install(installed, "theirs")
    assert not {"theirs", "other"} & names(added=("mine",))
    assert {"mine", "theirs"} <= names(added=("mine[fast]",))
    assert {"mine", "theirs"} <= names(added=("mine", "mine[fast]"))


@pytest.mark.slow
def test_a_circle_of_requirements_ends(installed: Path) -> None:
    install(installed, "mine", requires=("theirs",))
    install(installed, "theirs", requires=("mine",))
    assert {"mine", "theirs"} <= names(added=("mine",))


@pytest.mark.slow
def test_what_is_not_installed_is_an_error(installed: Path) -> None:
    install(installed, "mine", requires=("absent>=2",))
    with pytest.raises(TrainyardError, match="absent is not installed here, and mine requires it"):
        names(added=("mine",))


@pytest.mark.slow
def test_a_distribution_in_editable_mode_is_an_error(installed: Path) -> None:
    install(installed, "mine", direct_url='{"url": "file:///src", "dir_info": {"editable": true}}')
    with pytest.raises(TrainyardError, match="mine is installed in editable mode"):
        names(added=("mine",))


@pytest.mark.slow
def test_a_distribution_without_a_list_of_its_files_is_an_error(installed: Path) -> None:
    install(installed, "mine", requires=("theirs",))
    install(installed, "theirs")
    (installed / "theirs-1.0.dist-info" / "RECORD").unlink()
    with pytest.raises(TrainyardError, match=r"theirs cannot be packed.*pip install --ignore-installed theirs"):
        names(added=("mine",))


def test_programs_and_compiled_files_are_left_out(installed: Path) -> None:
    install(installed, "mine")
    assert dict(list_files(metadata.distribution("mine"))) == {"mine.py": installed / "mine.py"}
