"""What documents refer to stays as long as they do, in random graphs of runs, datasets, models and champions."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.plugins.jobs.retention.stored import DAY, NOW, Store, make_old
from trainyard.files import storage
from trainyard.jobs.retention.decision import KINDS, Options, Usage, decide
from trainyard.jobs.retention.inventory import scan
from trainyard.schemas.specs import SPECS
from trainyard.schemas.specs.task_key import TaskKey

JOBS = [kind.removesuffix(" spec") for kind in SPECS]
CODE = {"prepare": "toy.etl:prepare", "recipe": "toy.recipe:network", "script": "toy.script", "layer": "body"}
OTHERS = CODE | {"metrics": ["accuracy"], "keys": ["id"], "output": "/elsewhere/output", "model": "/elsewhere/model"}


class Graph:
    """A storage in which everything is old but for some runs. A node is the URI of a version; edges go from documents.

    Attributes:
        edges: The nodes that the documents of a node refer to.
        live: The nodes that stay by themselves.
    """

    def __init__(self, store: Store, random: Random) -> None:
        self.store, self.random = store, random
        self.edges: dict[str, set[str]] = {}
        self.live: set[str] = set()
        self.datasets: list[tuple[str, int]] = []
        self.models: list[tuple[str, str]] = []
        self.add_dataset("toy/dataset", 12)
        self.add_model("toy/model", 12)
        for number in range(random.randint(0, 2)):
            self.add_champion(number + 1)
        for number in range(random.randint(0, 3)):
            self.add_run(f"r{number}")
        store.run("the newest", 0)

    def dataset(self, edges: set[str]) -> tuple[str, int]:
        """Refer to a version of a dataset."""
        uri, version = self.random.choice(self.datasets)
        edges.add(f"{uri}/versions/{version:08d}.json")
        return uri, version

    def model(self, edges: set[str]) -> tuple[str, str]:
        """Refer to a version of a model."""
        uri, folder = self.random.choice(self.models)
        edges.add(f"{uri}/{folder}")
        return uri, folder.ljust(64, "0")

    def add_dataset(self, name: str, versions: int) -> None:
        uri = self.store.dataset([100.0] * versions, name)
        self.datasets += [(uri, version) for version in range(1, versions + 1)]
        self.edges |= {f"{uri}/versions/{version:08d}.json": set() for version in range(1, versions + 1)}
        self.live.add(f"{uri}/versions/{versions:08d}.json")

    def add_model(self, name: str, versions: int) -> None:
        for number in range(1, versions + 1):
            edges: set[str] = set()
            dataset, version = self.dataset(edges)
            folder = self.store.model(number, 100, name, dataset, version)
            self.edges[folder] = edges
            uri, _, weights = folder.rpartition("/")
            self.models.append((uri, weights))
        self.live.add(folder)

    def add_champion(self, number: int) -> None:
        edges: set[str] = set()
        dataset, version = self.dataset(edges)
        champion = self.store.model(number, 100, "toy/champion", dataset, version)
        uri, weights = self.model(edges)
        self.store.promotion(champion, f"{uri}/{weights[:16]}", 100, *self.dataset(edges))
        self.edges[champion] = edges
        self.live = {node for node in self.live if "/champion/" not in node} | {champion}

    def add_run(self, run_id: str) -> None:
        job, days, edges = self.random.choice(JOBS), self.random.choice([1, 1, 100]), set[str]()
        read = self.dataset(edges) if job in ("train", "evaluate") else None
        run = self.store.run(run_id, days, job=job, **self.build_result(job, read, edges))
        if job == "train" or self.random.random() < 0.5:
            is_attempt = job != "train" and self.random.random() < 0.5
            part = "attempts/train/1.json" if is_attempt else "specs/train.json"
            key = TaskKey(dag_id="toy", run_id=run_id, task_id="train", directory=run)
            fields = {"task_key": key, **self.build_spec(job, read, edges)}
            storage.replace(f"{run}/{part}", SPECS[f"{job} spec"](**fields).to_json().encode())
            make_old(self.store.path(run), days)
        self.edges[run] = edges
        self.live |= {run} if days == 1 else set()

    def build_result(self, job: str, read: tuple[str, int] | None, edges: set[str]) -> dict[str, Any]:
        if job == "script":
            return {}
        if job in ("export", "featurize"):
            return dict(zip(("uri", "version"), self.dataset(edges), strict=True))
        uri, weights = self.model(edges)
        if job == "predict":
            written = dict(zip(("uri", "version"), self.dataset(edges), strict=True))
            return {"model": uri, "weights_sha256": weights, **written}
        found: dict[str, Any] = {"uri": uri, "weights_sha256": weights}
        others = [dict(zip(("uri", "weights_sha256"), self.model(edges), strict=True)) for _ in range(2)]
        assert read
        if job == "train":
            return found | {"epoch_models": others, "dataset_version": read[1]}
        scores: dict[str, Any] = {"metrics": {}, "intervals": {}, "differences": {}}
        baselines = [other | scores for other in others]
        return found | {"dataset": read[0], "dataset_version": read[1], "baselines": baselines}

    def build_spec(self, job: str, read: tuple[str, int] | None, edges: set[str]) -> dict[str, Any]:
        known = SPECS[f"{job} spec"].model_fields
        fields: dict[str, Any] = {"dataset": read[0] if read else "/elsewhere/dataset"} | OTHERS
        if "source" in known:
            path, version = self.dataset(edges)
            name = self.random.choice(["version", "Version"])
            fields["source"] = {"format": "trainyard", "path": path, "options": {name: str(version)}}
        if "weights" in known:
            uri, weights = self.model(edges)
            fields |= {"model": uri, "weights": {uri: weights}}
        if job == "train":
            dataset, version = self.dataset(edges)
            fields["mix"] = [{"dataset": dataset, "version": version, "share": 0.5}]
        for name in {"prepare_params", "recipe_params", "postprocess_params"} & {*known}:
            teacher = dict(zip(("uri", "weights_sha256"), self.model(edges), strict=True))
            fields[name] = {"teachers": [teacher]}
        return {name: value for name, value in fields.items() if name in known}

    def find_live(self) -> set[str]:
        """Return the nodes that stay, and those that they refer to."""
        reached, pending = set[str](), list(self.live)
        while pending:
            if (node := pending.pop()) not in reached:
                reached.add(node)
                pending += self.edges[node]
        return reached


@pytest.mark.parametrize("seed", range(20))
def test_what_a_document_that_stays_refers_to_stays_and_all_else_goes(tmp_path: Path, seed: int) -> None:
    graph = Graph(Store(tmp_path), Random(seed))
    inventory = scan(graph.store.root, KINDS, NOW)
    assert [item.unreadable for item in inventory.items if item.unreadable] == []
    decision = decide(inventory, Usage(), Options(30 * DAY, 1, frozenset(KINDS)), NOW)
    removed = {removal.item.uri for removal in decision.removals}
    live = graph.find_live()
    assert removed & live == set()
    assert removed == graph.edges.keys() - live
