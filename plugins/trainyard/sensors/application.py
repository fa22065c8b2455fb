"""The sensor that waits for the end of an application."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator

from trainyard.compat import AirflowException
from trainyard.jobs.options import validation
from trainyard.jobs.options.common import WaitOptions
from trainyard.sensors.change import ChangeSensor
from trainyard.triggers.application_end import ApplicationEndTrigger


def _application_id(value: str) -> str:
    if not value.startswith("application_"):
        raise ValueError("write the id of an application, for example 'application_1790000000_0001'")
    return value


class ApplicationOptions(WaitOptions):
    """The options of an ApplicationSensor."""

    application: Annotated[str, AfterValidator(_application_id)]
    """The id of the application."""


class ApplicationSensor(ChangeSensor):
    """Wait for the end of an application on YARN, of Trainyard or not; fail if it did not succeed.

    Returns (XCom): the `application`, its `state`, `final_status` and `diagnostics`.
    """

    OPTIONS = ApplicationOptions

    def __init__(self, *, application: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        validation.check(self, ApplicationOptions)

    def make_trigger(self, options: Any) -> ApplicationEndTrigger:
        """Return the trigger that asks for the state of the application."""
        return ApplicationEndTrigger(options.application, self.poke_interval)

    def accept(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Return the end of the application. Raises AirflowException if it did not succeed."""
        if payload["final_status"] != "SUCCEEDED":
            raise AirflowException(
                f"{payload['application']} ended {payload['state']}/{payload['final_status']}: "
                f"{payload['diagnostics'].strip() or 'YARN has no diagnostics'}"
            )
        return payload
