"""What a job trains on, and what happens to it, in each scenario, on one machine and on YARN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Killed = Literal["none", "worker", "command"]
Following = Literal["none", "attempt", "command"]


@dataclass(frozen=True)
class Workload:
    """What a job trains on.

    Attributes:
        name: The name of the source's folder.
        rows: The training rows.
        test_rows: The held-out rows.
        values: The values of a row, each a `uint8`.
        files: The files of the training rows.
        contrast: The standard deviation of what makes a class, in each value.
        local_batch: The rows of a step of each of the two workers.
        epochs: The epochs.
    """

    name: str
    rows: int
    test_rows: int
    values: int
    files: int
    contrast: float
    local_batch: int
    epochs: int

    @property
    def steps_per_epoch(self) -> int:
        """The steps that each of the two workers takes in an epoch."""
        return -(-self.rows // (2 * self.local_batch))

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variables of a job."""
        numbers = {"VALUES": self.values, "BATCH": self.local_batch, "EPOCHS": self.epochs}
        return {f"PEERS_{name}": str(number) for name, number in numbers.items()}


IMAGES = Workload("source", 60_000, 10_000, 784, 8, contrast=9.0, local_batch=64, epochs=5)
"""Images of 28 x 28 in ten classes, and a convolutional network."""
TABLE = Workload("source-table", 2_000_000, 40_000, 100, 100, contrast=25.0, local_batch=512, epochs=3)
"""A table of two million rows of a hundred values in ten classes, and a network of two layers."""


@dataclass(frozen=True)
class Scenario:
    """What happens to a job.

    Attributes:
        text: What happens, in words.
        killed: What gets kill -9 in the third epoch: the worker with rank 1, or the command itself.
        following: What is started some seconds after the kill: the next attempt of the killed task in the same run, as
            by Airflow's scheduler, or the same command again.
        rounds: Whether there are several rounds of it.
        wrong_label: Whether one training row has a label that is no class.
        lists_left: Whether what is left is listed, some seconds after the command has ended.
        minutes: The limit of a command, which is then ended.
        variables: Environment variables of the job.
        workload: What it trains on.
    """

    text: str
    killed: Killed = "none"
    following: Following = "none"
    rounds: bool = False
    wrong_label: bool = False
    lists_left: bool = False
    minutes: int = 4
    variables: Mapping[str, str] = field(default_factory=dict)
    workload: Workload = IMAGES


SLOW = {"PEERS_STEP_SECONDS": "0.06"}
"""Each step takes 60 ms longer, so that the training still runs when the next attempt begins."""
LOCAL: Mapping[str, Scenario] = {
    "run": Scenario("nothing fails", rounds=True),
    "worker": Scenario("kill -9 of the worker with rank 1 in the third epoch", killed="worker", rounds=True),
    "orchestrator": Scenario("kill -9 of the command itself in the third epoch", killed="command", lists_left=True),
    "label": Scenario("one training row has a label that is no class", wrong_label=True),
    "table": Scenario("nothing fails, with two million rows", rounds=True, minutes=15, workload=TABLE),
}
YARN: Mapping[str, Scenario] = {
    "run": Scenario("nothing fails", rounds=True, minutes=8),
    "worker": Scenario("kill -9 of the worker with rank 1 in the third epoch", killed="worker", minutes=8),
    "orchestrator": Scenario(
        "kill -9 of the command itself in the third epoch, then the next attempt of its task",
        killed="command", following="attempt", lists_left=True, minutes=8, variables=SLOW,
    ),
    "again": Scenario(
        "kill -9 of the command itself in the third epoch, then the same command",
        killed="command", following="command", lists_left=True, minutes=8, variables=SLOW,
    ),
    "node-label": Scenario("the node label is misspelled", lists_left=True, variables={"PEERS_NODE_LABEL": "gpus"}),
    "memory": Scenario(
        "each worker takes 2 GB more than its container has room for",
        lists_left=True, minutes=10, variables={"PEERS_EXTRA_MEGABYTES": "2000"},
    ),
}  # fmt: skip
SCENARIOS = {"local": LOCAL, "yarn": YARN}
