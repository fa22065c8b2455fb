"""A reader who does what a page says, block by block, in a checkout with the examples' data.

| block | what is done with it |
| --- | --- |
| `python` | run; those of a page share one namespace. One that begins with `# dags/...py` becomes this file |
| `python before` | parsed: what somebody who comes from another system has |
| `sh` | run by bash |
| `sh fails` | run by bash, and fails |
| `sh cluster` | run on a real Hadoop, in `tests/cluster` |
| `output` | is what the block before has printed; `...` in it stands for anything |
| `xml`, `ini`, `json` | parsed |
| `text` | nothing: a drawing, a formula, a command line of another system |
| `{...}` | nothing: a directive, which is carried out when the pages are made |
"""

from __future__ import annotations

import ast
import configparser
import importlib
import io
import itertools
import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from functools import wraps
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from airflow.sdk import DAG

from tests.docs.pages import Block
from trainyard import operators
from trainyard.jobs import dry_run

BEFORE = """
. stack/local/env.sh
export PYTHONPATH=$PWD/plugins:$PWD:$PWD/dags
make() { command make --dry-run "$@" >/dev/null; }
docker() { [ "$1" = compose ] && grep -q "^  ${*: -1:1}:\\|^  $3:\\|^  $4:" docker-compose.yaml; }
"""
"""What every shell begins with. Targets are looked up, not made; of containers the services are looked up."""

DIGITS: dict[str, Any] = {"dataset": "digits/dataset", "model": "digits/model"}
IMAGES: dict[str, Any] = {"prepare": "digits.prepare:images", "source": "digits/source", "format": "image"}
USUAL: dict[str, dict[str, Any]] = {
    "ExportOperator": IMAGES | {"dataset": "digits/dataset"},
    "FeaturizeOperator": IMAGES | DIGITS | {"layer": "4"},
    "TrainOperator": DIGITS | {"recipe": "digits.recipe:convnet"},
    "ScriptOperator": {"script": "digits.recipe"},
    "EvaluateOperator": DIGITS | {"metrics": ["accuracy"]},
    "PredictOperator": IMAGES | {"model": "digits/model", "keys": ["id"], "output": "digits/predictions"},
    "PromoteOperator": {"evaluation": "evaluation", "champion": "digits/champion", "metric": "accuracy"},
}
"""What `...` among an operator's arguments stands for: the options that the digits pipeline gives it."""


class Reader:
    """Reads one page. `spark` is the session of a notebook, `df` its rows, `storage` where things are."""

    def __init__(self, checkout: Path, page: Path, spark: Any) -> None:
        self.checkout = checkout
        self.printed: str | None = None
        self.dags = [DAG(page.stem)]
        self.dags[0].fileloc = str(checkout / "dags" / "digits" / "page.py")
        storage = f"{checkout}/.run/storage"
        self.shorthand = _shorthand(storage)
        rows = spark.read.format("trainyard").load(f"{storage}/digits/dataset")
        self.names: dict[str, Any] = {"__name__": page.stem, "storage": storage, "spark": spark, "df": rows}
        with self.dags[0]:
            for name in ("export", "train", "evaluate"):
                self.shorthand[name] = self.shorthand[f"{name.title()}Operator"](..., task_id=f"{name}_of_the_page")

    def read(self, block: Block) -> None:
        """Fails the test when a block does not do what its kind says."""
        KINDS[block.kind.split("}")[0]](self, block)

    def problems(self) -> list[str]:
        """Why the tasks that the page has made could not be submitted."""
        return [found.problem for dag in self.dags for found in dry_run.plan_dag(dag) if found.problem]

    def python(self, block: Block) -> None:
        if block.file:
            file = write(self.checkout, block)
            importlib.invalidate_caches()
            module = importlib.import_module(f"{file.parent.name}.{file.stem}")
            self.dags += [made for made in vars(module).values() if isinstance(made, DAG)]
            return
        printed = io.StringIO()
        self.names |= self.shorthand
        with self.dags[0], redirect_stdout(printed):
            exec(compile("\n" * block.line + block.text, str(block.page), "exec"), self.names)
        self.dags += [
            made for made in self.names.values() if isinstance(made, DAG) and made not in self.dags and made.tasks
        ]
        self.printed = printed.getvalue()

    def before(self, block: Block) -> None:
        ast.parse(block.text)

    def shell(self, block: Block) -> None:
        assert self._bash(block) == 0, f"{block}\n{self.printed}"

    def failing_shell(self, block: Block) -> None:
        assert self._bash(block) != 0, f"{block} was to fail\n{self.printed}"

    def output(self, block: Block) -> None:
        if self.printed is not None:
            assert is_in(self.printed, block), f"{block} is not what was printed:\n{self.printed}"

    def xml(self, block: Block) -> None:
        ElementTree.fromstring(f"<page>{block.text}</page>")

    def ini(self, block: Block) -> None:
        configparser.ConfigParser(strict=True).read_string(f"[page]\n{block.text}")

    def json(self, block: Block) -> None:
        json.loads(block.text)

    def nothing(self, block: Block) -> None:
        """For blocks that are carried out elsewhere, or say nothing that could be."""

    def elsewhere(self, block: Block) -> None:
        self.printed = None

    def _bash(self, block: Block) -> int:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", BEFORE + block.text],
            cwd=self.checkout,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        self.printed = done.stdout
        return done.returncode


_OURS = ("AIRFLOW", "TRAINYARD", "PYTHONPATH", "PYSPARK", "SPARK_CONF")
KINDS: dict[str, Callable[[Reader, Block], None]] = {
    "python": Reader.python,
    "python before": Reader.before,
    "sh": Reader.shell,
    "sh fails": Reader.failing_shell,
    "sh cluster": Reader.elsewhere,
    "output": Reader.output,
    "xml": Reader.xml,
    "ini": Reader.ini,
    "json": Reader.json,
    "text": Reader.nothing,
    "{eval-rst": Reader.nothing,
    "{toctree": Reader.nothing,
}


def write(checkout: Path, block: Block) -> Path:
    """The block as the file that it is, in a package."""
    file = checkout / str(block.file)
    file.parent.mkdir(parents=True, exist_ok=True)
    (file.parent / "__init__.py").touch()
    file.write_text(block.text)
    return file


def is_in(printed: str, output: Block) -> bool:
    """Whether what was printed holds an output, but for spaces; `...` in it stands for anything."""
    parts = [re.escape(" ".join(part.split())) for part in output.text.split("...")]
    return re.search(".*?".join(parts), " ".join(printed.split())) is not None


def _shorthand(storage: str) -> dict[str, Any]:
    """The operators, `fit` and `Recipe`, each of which takes `...` for what it is usually given."""
    from torch import nn

    from trainyard.trainer.loop.fit import fit
    from trainyard.trainer.model.recipe import Recipe

    number = itertools.count(1)

    def operator(name: str) -> Callable[..., Any]:
        made = getattr(operators, name)
        return _elided(lambda **given: made(**{"task_id": f"{name.lower()}_{next(number)}"} | given), USUAL[name])

    fitted = {
        "recipe": "penguins.recipe:network", "dataset": f"{storage}/penguins/dataset", "model": f"{storage}/fitted",
        "epochs": 1, "batch_size": 32,
    }  # fmt: skip
    classified = {"model": nn.Linear(64, 10), "features": "image", "label": "label", "loss": nn.CrossEntropyLoss()}
    return {name: operator(name) for name in USUAL} | {
        "fit": _elided(fit, fitted),
        "Recipe": _elided(Recipe, classified),
    }


def _elided(function: Callable[..., Any], usual: Mapping[str, Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*given: Any, **options: Any) -> Any:
        return function(**usual | options) if given == (...,) else function(*given, **options)

    return call
