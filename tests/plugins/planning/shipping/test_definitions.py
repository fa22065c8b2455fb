"""The names that a module defines, and the modules that it imports, are read from its text."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from trainyard.errors import TrainyardError
from trainyard.planning.shipping.definitions import defined_names, imported_modules
from trainyard.planning.shipping.packages import user_package


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def build(): ...", {"build"}),
        ("async def build(): ...", {"build"}),
        ("class Build: ...", {"Build"}),
        ("build = other = None", {"build", "other"}),
        ("(a, [b, *c]) = f()", {"a", "b", "c"}),
        ("build: object = None", {"build"}),
        ("import torch.nn", {"torch"}),
        ("import torch.nn as nn", {"nn"}),
        ("from .models import build as network", {"network"}),
        ("if True:\n    def a(): ...\nelse:\n    def b(): ...", {"a", "b"}),
        ("try:\n    import a\nexcept ImportError:\n    a = b = None", {"a", "b"}),
        ("with open('x') as file:\n    a = 1", {"file", "a"}),
        ("for a in ():\n    b = 1", {"a", "b"}),
        ("print(a := 1)", {"a"}),
        ("match 1:\n    case a: ...", {"a"}),
        ("def f():\n    global build\n    build = 1", {"f", "build"}),
        ("def f():\n    build = 1\nclass C:\n    network = 1", {"f", "C"}),
        ("print(build)", set()),
        ("# coding: utf-8\nname = 'build'", {"name"}),
    ],
)
def test_names_that_a_module_binds_at_its_top_level_are_found(text: str, names: set[str]) -> None:
    assert defined_names(text.encode()) == names


@pytest.mark.parametrize(
    "text",
    [
        "from .models import *",
        "def __getattr__(name): ...",
        "globals()['build'] = 1",
        "exec('build = 1')",
        "import sys\nsetattr(sys.modules[__name__], 'build', 1)",
        "import sys\nsys.modules[__name__].__dict__['build'] = 1",
        "import sys as s\ns.modules.get(__name__).build = 1",
        "from sys import modules\ndef add(name):\n    setattr(modules[__name__], name, 1)\nadd('build')",
        "from importlib import import_module\nimport_module(__name__).build = 1",
        "import models\nmodels.register(__name__)",
        "me = __name__",
        "def build(:",
    ],
)
def test_the_names_of_a_module_that_must_be_executed_are_unknown(text: str) -> None:
    assert defined_names(text.encode()) is None


@pytest.mark.parametrize(
    "text",
    [
        "import logging\nlog = logging.getLogger(__name__)",
        "from logging import getLogger\nlog = getLogger(__name__)",
        "log = None\nif __name__ == '__main__':\n    log = 1",
        "import torch\nlog = [m for m in torch.nn.Linear(1, 1).modules()]",
    ],
)
def test_the_names_of_a_module_that_only_logs_or_runs_under_its_name_are_known(text: str) -> None:
    names = defined_names(text.encode())
    assert names and "log" in names


def write(folder: Path, text: str) -> Path:
    (folder / "toy").mkdir()
    (folder / "toy" / "recipe.py").write_text(textwrap.dedent(text))
    return folder / "dag.py"


def test_a_function_that_its_module_does_not_define_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    dag_file = write(tmp_path, "def network(): ...")
    with pytest.raises(TrainyardError, match=r"recipe\.py does not define 'netwrok'; the nearest one is 'network'\.$"):
        user_package("toy.recipe:netwrok", dag_file)


def test_a_function_that_is_like_no_other_is_refused_with_all_of_them(tmp_path: Path) -> None:
    dag_file = write(tmp_path, "import torch\ndef network(): ...\ndef _own(): ...")
    with pytest.raises(TrainyardError, match=r"does not define 'x'; it defines network, torch\.$"):
        user_package("toy.recipe:x", dag_file)


def test_a_function_of_a_package_is_looked_for_in_its_init_file(tmp_path: Path) -> None:
    dag_file = write(tmp_path, "def network(): ...")
    (tmp_path / "toy" / "__init__.py").write_text("from toy.recipe import network")
    assert user_package("toy:network", dag_file)
    with pytest.raises(TrainyardError, match=r"__init__\.py does not define 'rows'"):
        user_package("toy:rows", dag_file)


def test_a_script_needs_no_function(tmp_path: Path) -> None:
    assert user_package("toy.recipe", write(tmp_path, ""))


def test_a_module_in_another_encoding_is_read(tmp_path: Path) -> None:
    dag_file = write(tmp_path, "")
    (tmp_path / "toy" / "recipe.py").write_bytes(b"# coding: latin-1\nname = '\xe9'\ndef network(): ...\n")
    assert user_package("toy.recipe:network", dag_file)


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        ("import a, b.c as d", {"a", "b.c"}),
        ("from a.b import c, d", {"a.b", "a.b.c", "a.b.d"}),
        ("from . import a\nfrom .b import c", {"x.y", "x.y.a", "x.y.b", "x.y.b.c"}),
        ("from .. import a\nfrom ..b import c", {"x", "x.a", "x.b", "x.b.c"}),
        ("def f():\n    if True:\n        import a", {"a"}),
        ("from a import *", {"a", "a.*"}),
        ("import", set()),
        ("\0", set()),
    ],
)
def test_modules_that_a_module_imports_are_found(text: str, modules: set[str]) -> None:
    assert imported_modules(text.encode(), "x.y") == modules
