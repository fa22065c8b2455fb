"""What happens to a job in each scenario, on one machine and on YARN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Killed = Literal["none", "worker", "command"]
Following = Literal["none", "attempt", "command"]


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
    """

    text: str
    killed: Killed = "none"
    following: Following = "none"
    rounds: bool = False
    wrong_label: bool = False
    lists_left: bool = False
    minutes: int = 4
    variables: Mapping[str, str] = field(default_factory=dict)


SLOW = {"PEERS_STEP_SECONDS": "0.06"}
"""Each step takes 60 ms longer, so that the training still runs when the next attempt begins."""
LOCAL: Mapping[str, Scenario] = {
    "run": Scenario("nothing fails", rounds=True),
    "worker": Scenario("kill -9 of the worker with rank 1 in the third epoch", killed="worker", rounds=True),
    "orchestrator": Scenario("kill -9 of the command itself in the third epoch", killed="command", lists_left=True),
    "label": Scenario("one training row has a label that is no class", wrong_label=True),
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
