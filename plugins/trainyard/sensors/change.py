"""The base class of sensors that wait for a change."""

from __future__ import annotations

from abc import abstractmethod
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseSensorOperator, PokeReturnValue

from trainyard.compat import AirflowException
from trainyard.errors import TrainyardError, UnavailableError
from trainyard.jobs.options import validation
from trainyard.jobs.options.base import HasOptions, or_default_deferrable
from trainyard.jobs.options.common import WaitOptions
from trainyard.triggers.change import ChangeTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context


class ChangeSensor(HasOptions, BaseSensorOperator):  # type: ignore[misc]
    """Wait for a change, and return what the trigger reports.

    Args:
        kwargs: Arguments of `BaseSensorOperator`, such as `poke_interval` and `timeout`.

    Attributes:
        OPTIONS: The options of the sensor.
    """

    OPTIONS: ClassVar[type[WaitOptions]] = WaitOptions
    ui_color = "#dfeee6"

    def __init__(self, *, deferrable: bool | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deferrable = or_default_deferrable(deferrable)

    @abstractmethod
    def make_trigger(self, options: Any) -> ChangeTrigger:
        """Return the trigger that looks for the change, with validated options."""

    def execute(self, context: Context) -> Any:
        """Return the report of a change that has happened already, or wait for one."""
        if not self.deferrable:
            return super().execute(context)
        found = self.poke(context)
        if not found.is_done:
            self.defer(trigger=self._make_trigger(), method_name="resume", timeout=timedelta(seconds=self.timeout))
        return found.xcom_value

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once. What is not available now is logged, and looked for again."""
        try:
            payload = self._make_trigger().look()
        except Exception as error:  # each storage raises exceptions of its own
            if isinstance(error, TrainyardError) and not isinstance(error, UnavailableError):
                raise AirflowException(f"{type(self).__name__} {self.task_id!r}: {error}") from None
            self.log.warning("%s", error)
            payload = None
        return PokeReturnValue(is_done=payload is not None, xcom_value=self.accept(payload) if payload else None)

    def resume(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Return the report of the trigger."""
        return self.accept(event)

    def accept(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Return the report of a change; a subclass may fail the task instead."""
        return payload

    def _make_trigger(self) -> ChangeTrigger:
        return self.make_trigger(validation.convert(self, self.OPTIONS))
