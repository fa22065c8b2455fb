"""What the images install is part of what is locked."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def listed(name: str) -> dict[str, Requirement]:
    lines = (ROOT / name).read_text().splitlines()
    found = [Requirement(line) for line in lines if line and not line.lstrip().startswith("#")]
    return {canonicalize_name(one.name): one for one in found}


LOCKED = listed("requirements.txt")
IMAGES = {image: listed(f"stack/compose/{image}.txt") for image in ("airflow", "node")}


def installed(image: str) -> set[str]:
    """The packages of an image that are locked, with all that they need."""
    found: set[str] = set()
    rest = [(name, "") for name in IMAGES[image] if name in LOCKED]
    seen: set[tuple[str, str]] = set()
    while rest:
        name, extra = rest.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        found.add(name)
        for text in importlib.metadata.requires(name) or []:
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                rest += [(canonicalize_name(needed.name), wanted) for wanted in ("", *needed.extras)]
    return found


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_takes_its_versions_from_the_lock(image: str) -> None:
    own = {name: one for name, one in IMAGES[image].items() if name not in LOCKED}
    assert all(str(one.specifier).startswith("==") for one in own.values())
    assert not [name for name, one in IMAGES[image].items() if name in LOCKED and one.specifier]


@pytest.mark.parametrize("image", IMAGES)
def test_what_an_image_needs_further_is_locked_too(image: str) -> None:
    assert installed(image) <= set(LOCKED)


def test_airflow_is_without_torch_and_nodes_are_without_airflow() -> None:
    assert "torch" not in installed("airflow")
    assert "apache-airflow" not in installed("node")
    assert set(LOCKED) <= installed("airflow") | installed("node")
