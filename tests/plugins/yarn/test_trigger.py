"""What the task log says of an application that is waited for."""

from __future__ import annotations

import pytest

from trainyard.yarn.resource_manager import Application
from trainyard.yarn.trigger import standing


@pytest.mark.parametrize(
    ("state", "diagnostics", "said"),
    [
        ("RUNNING", "", "application_1 is RUNNING"),
        (
            "ACCEPTED",
            "[Sat Nov 21 19:00:00 +0000 2026] Application is Activated, waiting for resources to be assigned for AM.  "
            "Details : AM Partition = gpu ; AM Resource Request = <memory:2048, vCores:1>\n",
            "application_1 is ACCEPTED: Application is Activated, waiting for resources to be assigned for AM.",
        ),
    ],
)
def test_figures_and_times_that_change_are_left_out(state: str, diagnostics: str, said: str) -> None:
    assert standing(Application("application_1", state, "UNDEFINED", "etl", diagnostics, "", 0.0)) == said
