"""The state that another process would build a model in: other random numbers, and Python modules imported anew."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import numpy as np
import torch

from trainyard.trainer.data.randomness import set_seed

INSTALLED = ("site-packages", "dist-packages")
OTHER_SEED = 0x5EED


@contextmanager
def use_random_state(seed: int) -> Iterator[None]:
    """Seed the random numbers of torch, NumPy and Python in the body, and restore their state after it."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices):
            set_seed(seed, torch.device("cuda", devices[0]) if devices else torch.device("cpu"))
            random.seed(seed)
            np.random.seed(seed)
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


@contextmanager
def import_anew(recipe: str) -> Iterator[None]:
    """Have the body import the module of a recipe anew, and the other modules beside it, but no installed packages.

    If it cannot be imported a second time, such as one that registers an operator, the body uses what there is.

    Args:
        recipe: The import path of the recipe.
    """
    removed = {name: sys.modules.pop(name) for name in list_own_modules(recipe)}
    top = {name.partition(".")[0] for name in removed}
    try:
        try:
            importlib.import_module(recipe.partition(":")[0])
        except Exception:
            sys.modules.update(removed)
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] in top]:
            del sys.modules[name]
        sys.modules.update(removed)


def list_own_modules(recipe: str) -> list[str]:
    """Return the names of the imported modules that lie in the same directory or archive as those of a recipe."""
    tops = {name for name in sys.modules if "." not in name} - {"__main__", __name__.partition(".")[0]}
    own = recipe.partition(":")[0].partition(".")[0]
    location = _find_location(sys.modules[own]) if own in tops else None
    if location is None or location.rpartition("/")[2] in INSTALLED:
        return []
    beside = {top for top in tops if _find_location(sys.modules[top]) == location}
    return [name for name in sys.modules if name.partition(".")[0] in beside]


def _find_location(module: ModuleType) -> str | None:
    """Return the directory or archive that a top-level package or module was imported from; None if from no file."""
    if (paths := getattr(module, "__path__", None)) is not None:
        return next((path.rpartition("/")[0] for path in paths), None)
    file = getattr(module, "__file__", None)
    return file.rpartition("/")[0] if file else None
