"""Modules are imported anew and put back, and random numbers go on as if nothing had been drawn."""

from __future__ import annotations

import importlib
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from trainyard.trainer.verification.fresh_state import import_anew, list_own_modules, use_random_state


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package `own`, which counts in a module beside it how often it was imported."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "__init__.py").write_text("")
    (tmp_path / "own" / "recipe.py").write_text("import beside, json\nvalues = []\n")
    (tmp_path / "beside.py").write_text("values = []\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("own", "own.recipe", "beside"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.import_module("own.recipe")
    return "own.recipe:network"


def test_modules_of_the_recipe_and_beside_it_are_others_in_the_body_only(package: str) -> None:
    before = {name: sys.modules[name] for name in ("own", "own.recipe", "beside", "json")}
    assert {*list_own_modules(package)} == {"own", "own.recipe", "beside"}
    with import_anew(package):
        assert all(sys.modules[name] is not before[name] for name in ("own", "own.recipe", "beside"))
        assert sys.modules["json"] is before["json"]
    assert all(sys.modules[name] is module for name, module in before.items())


def test_a_module_that_cannot_be_imported_twice_is_used_as_it_is(package: str, tmp_path: Path) -> None:
    before = sys.modules["own.recipe"]
    (tmp_path / "own" / "recipe.py").write_text("raise RuntimeError('registered already')\n")
    importlib.invalidate_caches()
    with import_anew(package):
        assert sys.modules["own.recipe"] is before
    assert sys.modules["own.recipe"] is before


def test_installed_and_unknown_modules_are_not_imported_anew() -> None:
    for recipe in ("torchmetrics.classification:Accuracy", "no_such_module:network", "json:loads"):
        assert "torch" not in list_own_modules(recipe) and "trainyard" not in list_own_modules(recipe)


def test_random_numbers_go_on_as_before() -> None:
    def draw() -> list[float]:
        return [torch.rand(()).item(), float(np.random.rand()), random.random()]

    torch.manual_seed(1), np.random.seed(1), random.seed(1)
    expected = draw()
    torch.manual_seed(1), np.random.seed(1), random.seed(1)
    with use_random_state(7):
        inside = draw()
    assert draw() == expected != inside
    with use_random_state(7):
        assert draw() == inside
