"""The images install locked versions only."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def read_requirements(name: str) -> dict[str, Requirement]:
    lines = (ROOT / name).read_text().splitlines()
    found = [Requirement(line.removesuffix(" \\")) for line in lines if line and line[0].isalnum()]
    here = [requirement for requirement in found if requirement.marker is None or requirement.marker.evaluate()]
    return {canonicalize_name(requirement.name): requirement for requirement in here}


LOCKED = read_requirements("requirements.txt")
IMAGES = {image: read_requirements(f"stack/compose/{image}.txt") for image in ("airflow", "node")}


def find_installed(image: str) -> set[str]:
    """Return the locked packages of an image and all their dependencies."""
    packages: set[str] = set()
    rest = [(name, "") for name in IMAGES[image] if name in LOCKED]
    seen: set[tuple[str, str]] = set()
    while rest:
        name, extra = rest.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        packages.add(name)
        for text in importlib.metadata.requires(name) or []:
            dependency = Requirement(text)
            if dependency.marker is None or dependency.marker.evaluate({"extra": extra}):
                rest += [(canonicalize_name(dependency.name), needed) for needed in ("", *dependency.extras)]
    return packages


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt", "requirements-s3.txt"])
def test_each_locked_package_has_the_digests_of_its_files(name: str) -> None:
    packages = re.split(r"\n(?=\w)", (ROOT / name).read_text().strip())
    assert len(packages) > 20
    assert not [package.split(" ")[0] for package in packages if "--hash=sha256:" not in package]


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_takes_its_versions_from_the_lock(image: str) -> None:
    unlocked = [requirement for name, requirement in IMAGES[image].items() if name not in LOCKED]
    assert all(str(requirement.specifier).startswith("==") for requirement in unlocked)
    assert not [name for name, requirement in IMAGES[image].items() if name in LOCKED and requirement.specifier]


@pytest.mark.slow
@pytest.mark.parametrize("image", IMAGES)
def test_the_dependencies_of_an_image_are_locked(image: str) -> None:
    assert find_installed(image) <= set(LOCKED)


def test_nodes_have_what_the_jobs_of_a_cluster_need() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["optional-dependencies"]["cluster"], *project["optional-dependencies"]["tracking"]]
    assert {canonicalize_name(Requirement(text).name) for text in needed} <= set(IMAGES["node"])


def test_airflow_has_what_the_package_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {canonicalize_name(Requirement(text).name) for text in project["dependencies"]} <= set(IMAGES["airflow"])


@pytest.mark.slow
def test_airflow_has_no_torch_and_nodes_have_no_airflow() -> None:
    assert "torch" not in find_installed("airflow")
    assert "apache-airflow" not in find_installed("node")
    assert set(LOCKED) <= find_installed("airflow") | find_installed("node")


def test_pyspark_and_its_client_have_the_same_bounds_up_to_the_locked_version() -> None:
    """An installer that has other versions of the two leaves some files of each."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = {Requirement(text).name: Requirement(text).specifier for text in project["dependencies"]}
    assert bounds["pyspark"] == bounds["pyspark-client"]
    locked = {str(LOCKED[name].specifier).removeprefix("==") for name in ("pyspark", "pyspark-client")}
    assert [f"<={version}" for version in locked] == [str(one) for one in bounds["pyspark"] if one.operator == "<="]


def test_every_requirement_of_the_package_has_a_lower_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [*project["dependencies"], *project["optional-dependencies"]["cluster"]]
    unbounded = [text for text in texts if not any(one.operator == ">=" for one in Requirement(text).specifier)]
    assert unbounded == []
