"""Run the blocks of a page one by one, in a checkout with the data of the examples.

| block | what the reader does with it |
| --- | --- |
| `python` | run; those of a page share one namespace. One that begins with `# dags/...py` becomes this file |
| `python before` | parsed: code of another system |
| `sh` | run by bash |
| `sh fails` | run by bash, and must fail |
| `sh cluster` | run on a real Hadoop, in `tests/cluster` |
| `sh installed` | run with the installed wheel by `make fresh` |
| `output` | compared with the output of the block before; `...` matches anything |
| `xml`, `ini`, `json` | parsed |
| `text` | nothing: a diagram, a formula, a command line of another system |
| `{...}` | nothing: a directive of Sphinx |
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
from trainyard.schemas.runs import outcomes

BEFORE = """
. stack/local/env.sh
export PYTHONPATH=$PWD/plugins:$PWD:$PWD/dags
make() { command make --dry-run "$@" >/dev/null; }
docker() { [ "$1" = compose ] && grep -q "^  ${*: -1:1}:\\|^  $3:\\|^  $4:" docker-compose.yaml; }
"""
"""The beginning of every shell. `make` and `docker compose` only check that targets and services exist."""

DIGITS: dict[str, Any] = {"dataset": "digits/dataset", "model": "digits/model"}
IMAGES: dict[str, Any] = {"prepare": "digits.prepare:images", "source": "digits/source", "format": "binaryFile"}
ELIDED: dict[str, dict[str, Any]] = {
    "ExportOperator": IMAGES | {"dataset": "digits/dataset"},
    "FeaturizeOperator": IMAGES | DIGITS | {"layer": "4"},
    "TrainOperator": DIGITS | {"recipe": "digits.recipe:convnet"},
    "ScriptOperator": {"script": "digits.recipe"},
    "EvaluateOperator": DIGITS | {"metrics": ["accuracy"]},
    "PredictOperator": IMAGES | {"model": "digits/model", "keys": ["id"], "output": "digits/predictions"},
    "PromoteOperator": {"evaluation": "evaluation", "champion": "digits/champion", "metric": "accuracy"},
}
"""The options that `...` among an operator's arguments stands for: those of the digits pipeline."""


class Reader:
    """Run one page, with the names `spark` (a session), `df` (a DataFrame) and `storage` (a URI)."""

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
        """Run a block as its kind says, and fail the test where it does not work."""
        KINDS[block.kind.split("}")[0]](self, block)

    def problems(self) -> list[str]:
        """Return why tasks of the page could not be submitted."""
        return [stage.problem for dag in self.dags for stage in dry_run.plan_dag(dag) if stage.problem]

    def bad_models(self) -> list[str]:
        """Return the evaluations that ran whose model is worse than a dummy, or wrong for a tenth of the rows."""
        runs = (self.checkout / ".run" / "storage" / "runs").glob("*/*")
        evaluations = [one for run in runs for one in outcomes.read_run(str(run)) if one.job == "evaluate"]
        good = [not one.output["warnings"] and one.output["metrics"].get("accuracy", 1) > 0.9 for one in evaluations]
        return [f"{one.task_key}: {one.output}" for one, is_good in zip(evaluations, good, strict=True) if not is_good]

    def python(self, block: Block) -> None:
        if block.file:
            file = write(self.checkout, block)
            importlib.invalidate_caches()
            module = importlib.import_module(f"{file.parent.name}.{file.stem}")
            self.dags += [value for value in vars(module).values() if isinstance(value, DAG)]
            return
        printed = io.StringIO()
        self.names |= self.shorthand
        with self.dags[0], redirect_stdout(printed):
            exec(compile("\n" * block.line + block.text, str(block.page), "exec"), self.names)
        self.dags += [
            value for value in self.names.values() if isinstance(value, DAG) and value not in self.dags and value.tasks
        ]
        self.printed = printed.getvalue()

    def before(self, block: Block) -> None:
        ast.parse(block.text)

    def shell(self, block: Block) -> None:
        assert self._bash(block) == 0, f"{block}\n{self.printed}"

    def failing_shell(self, block: Block) -> None:
        assert self._bash(block) != 0, f"{block} must fail\n{self.printed}"

    def output(self, block: Block) -> None:
        if self.printed is not None:
            assert is_in(self.printed, block), f"{block} differs from the output:\n{self.printed}"

    def xml(self, block: Block) -> None:
        ElementTree.fromstring(f"<page>{block.text}</page>")

    def ini(self, block: Block) -> None:
        configparser.ConfigParser(strict=True).read_string(f"[page]\n{block.text}")

    def json(self, block: Block) -> None:
        json.loads(block.text)

    def nothing(self, block: Block) -> None:
        """Do nothing."""

    def elsewhere(self, block: Block) -> None:
        self.printed = None

    def _bash(self, block: Block) -> int:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        process = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", BEFORE + block.text],
            cwd=self.checkout,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        self.printed = process.stdout
        return process.returncode


_OURS = ("AIRFLOW", "TRAINYARD", "PYTHONPATH", "PYSPARK", "SPARK_CONF")
KINDS: dict[str, Callable[[Reader, Block], None]] = {
    "python": Reader.python,
    "python before": Reader.before,
    "sh": Reader.shell,
    "sh fails": Reader.failing_shell,
    "sh cluster": Reader.elsewhere,
    "sh installed": Reader.elsewhere,
    "output": Reader.output,
    "xml": Reader.xml,
    "ini": Reader.ini,
    "json": Reader.json,
    "text": Reader.nothing,
    "{eval-rst": Reader.nothing,
    "{toctree": Reader.nothing,
    "{include": Reader.nothing,
}


def write(checkout: Path, block: Block) -> Path:
    """Write the block to the file that it names, in a package."""
    file = checkout / str(block.file)
    file.parent.mkdir(parents=True, exist_ok=True)
    (file.parent / "__init__.py").touch()
    file.write_text(block.text)
    return file


def is_in(printed: str, output: Block) -> bool:
    """Return whether an output contains a block, ignoring whitespace; `...` in the block matches anything."""
    parts = [re.escape(" ".join(part.split())) for part in output.text.split("...")]
    return re.search(".*?".join(parts), " ".join(printed.split())) is not None


def _shorthand(storage: str) -> dict[str, Any]:
    """Return the operators, `fit` and `Recipe`, each of which accepts `...` for its required arguments."""
    from torch import nn

    from trainyard.trainer.loop.fit import fit
    from trainyard.trainer.model.recipe import Recipe

    number = itertools.count(1)

    def operator(name: str) -> Callable[..., Any]:
        operator_class = getattr(operators, name)

        def build(**options: Any) -> Any:
            return operator_class(**{"task_id": f"{name.lower()}_{next(number)}"} | options)

        return _elide(build, ELIDED[name])

    fit_options = {
        "recipe": "penguins.recipe:network", "dataset": f"{storage}/penguins/dataset", "model": f"{storage}/fitted",
        "epochs": 1, "batch_size": 32,
    }  # fmt: skip
    recipe_options = {"model": nn.Linear(64, 10), "features": "image", "label": "label", "loss": nn.CrossEntropyLoss()}
    return {name: operator(name) for name in ELIDED} | {
        "fit": _elide(fit, fit_options),
        "Recipe": _elide(Recipe, recipe_options),
    }


def _elide(function: Callable[..., Any], required: Mapping[str, Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        return function(**required | options) if arguments == (...,) else function(*arguments, **options)

    return call
