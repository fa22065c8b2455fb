"""The task that holds the whole DAG against the cluster before the first stage runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException

from trainyard.errors import TrainyardError
from trainyard.yarn import fit

if TYPE_CHECKING:
    from airflow.sdk import Context


class PreflightOperator(BaseOperator):  # type: ignore[misc]
    """Fails with every problem that a stage of this DAG would meet, each with its remedy.

    Put it upstream of the first stage. It holds queues, labels, memory, GPUs and limits against the
    cluster, writes to the storage and removes it, and imports the job's modules on the nodes.
    """

    ui_color = "#e8ead8"

    def execute(self, context: Context) -> None:
        """Print the table; raises AirflowException with the problems."""
        from trainyard.checks.preflight import check_dag
        from trainyard.jobs.dry_run import plan_dag

        try:
            found = check_dag(plan_dag(self.dag, dict(context["params"])))
        except TrainyardError as error:
            raise AirflowException(str(error)) from None
        for line in fit.as_text(found).splitlines():
            self.log.info(line)
        if problems := [finding.problem for finding in found if finding.problem]:
            raise AirflowException("\n".join(problems))
