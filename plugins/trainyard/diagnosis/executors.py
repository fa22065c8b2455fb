"""Find why executors fail to start: the error of the first one, which the driver does not see. Pure functions."""

from __future__ import annotations

import re

from trainyard.diagnosis.diagnosis import Diagnosis, Rule
from trainyard.planning.plan import Plan

GPU_FIX = (
    "Run it there: the driver must be loaded, and containers must be allowed to use the GPUs. Otherwise have the node "
    "taken out of its label."
)
_HEAD = r"executor (?P<container>\S+) on node (?P<node>\S+):\n"
_GAVE_UP = re.compile(
    r"Max number of executor failures \(\d+\) reached|all available nodes are excluded|needs as many slots at once, but"
)
_OWN = re.compile(r"Executor self-exiting due to : (?P<error>[^\n]+)")
_ERROR = re.compile(r"\b(?:ERROR|FATAL|[\w.]*Error|[\w.]*Exception)\b")


def title(container: str, node: str) -> str:
    """Return the line before the log of an executor, by which rules know its node."""
    return f"executor {container} on node {node}:\n"


def failed_to_start(*texts: str) -> bool:
    """Return whether Spark, or the worker group, gave up because executors did not start."""
    return any(_GAVE_UP.search(text) for text in texts)


def quote_first(log: str) -> str:
    """Return a sentence with the error of the first lost executor, whose log begins with its title; "" without one."""
    head = re.match(_HEAD, log)
    lines = [line.strip() for line in log[head.end() :].splitlines() if line.strip()] if head else []
    if not head or not lines:
        return ""
    own = _OWN.search(log)
    error = own["error"] if own else next((line for line in reversed(lines) if _ERROR.search(line)), lines[-1])
    return (
        f"Executors failed to start. The first one, {head['container']} on node {head['node']}, ended with: "
        f"{error.rstrip('.')}."
    )


def _missing_gpus(match: re.Match[str], _: Plan) -> Diagnosis:
    count = len([address for address in match["addresses"].split(",") if address.strip()])
    where = f"On node {match['node']!r}" if match["node"] else "On a node"
    return Diagnosis(
        f"{where}, nvidia-smi found {count} of the {match['asked']} GPUs that an executor requests. {GPU_FIX}"
    )


BY_TEXT: list[tuple[str, Rule]] = [
    (
        rf"(?:{_HEAD}.*?)?Resource: gpu, with addresses: (?P<addresses>[\d, ]*?) is less than what the user requested: "
        r"(?P<asked>\d+)",
        _missing_gpus,
    ),
]
