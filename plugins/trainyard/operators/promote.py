"""Promote: replace the champion by a better model, or stop the DAG here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from airflow.sdk import BaseOperator
from pydantic import AfterValidator

from trainyard.compat import AirflowException, AirflowSkipException
from trainyard.errors import TrainyardError
from trainyard.files import uris
from trainyard.hooks.trainyard import TrainyardHook
from trainyard.jobs import lineage
from trainyard.jobs.assets import output_asset
from trainyard.jobs.options import validation
from trainyard.jobs.options.base import HasOptions, Templated, default, or_empty
from trainyard.jobs.options.common import ConnectionOptions
from trainyard.models import promotion
from trainyard.schemas.evaluation import Evaluation
from trainyard.schemas.promotion import Rule
from trainyard.schemas.specs.fields import Output

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

OnReject = Literal["skip", "fail", "continue"]


def _evaluation(value: Any) -> Any:
    if not (isinstance(value, str) and value) and not (isinstance(value, Mapping) and "evaluation" in value):
        raise ValueError("write evaluate.output, or the URI of an evaluation")
    return value


class PromoteOptions(Rule, ConnectionOptions):
    """The options of a PromoteOperator."""

    evaluation: Annotated[Any, AfterValidator(_evaluation)]
    """`evaluate.output` of an EvaluateOperator that also scored the champion (`baselines=`)."""
    champion: Output
    """Where the champion is stored: a name below the storage root, or a URI."""
    on_reject: OnReject
    """What happens if the champion stays: `skip` the tasks downstream, `fail`, or `continue` (`promoted` is False)."""


class PromoteOperator(HasOptions, BaseOperator):  # type: ignore[misc]
    """Make a model the champion if its evaluation shows that it is better.

    Returns (XCom): whether the model was `promoted` and `why`, the champion's `uri` and `weights_sha256`, and `metrics`
    of the model. With `on_reject="continue"` also when the champion stays; its asset has no event then.
    """

    OPTIONS = PromoteOptions
    ui_color = "#dfeee6"

    def __init__(
        self,
        *,
        evaluation: Any,
        champion: str,
        metric: str,
        margin: Templated[float] = default(Rule, "margin"),
        confident: Templated[bool] = default(Rule, "confident"),
        required: dict[str, Templated[float]] | None = None,
        required_of_slices: dict[str, Templated[float]] | None = None,
        slice_tolerance: Templated[float] | None = None,
        on_reject: Templated[OnReject] = "skip",
        conn_id: str = "trainyard_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"multiple_outputs": True} | kwargs)
        self.required, self.required_of_slices = or_empty(required), or_empty(required_of_slices)
        self._lineage: lineage.Lineage | None = None
        validation.check(self, PromoteOptions)
        if output := output_asset(champion, conn_id):
            self.outlets.append(output)

    def execute(self, context: Context) -> dict[str, Any]:
        """Promote the model, or skip or fail with the reason."""
        try:
            root = TrainyardHook(self.conn_id).get_conn().storage
            rule = self._options()
            champion, uri = uris.resolve(root, rule.champion), rule.evaluation
            uri = uri["evaluation"] if isinstance(uri, Mapping) else uri
            evaluation = Evaluation.load(uris.resolve(root, uri))
            current = promotion.read_champion(champion)
            verdict = promotion.decide(evaluation, champion, current.weights_sha256, rule)
            if verdict.promoted:
                promotion.publish(evaluation, current, rule, verdict.why)
        except (TrainyardError, FileNotFoundError) as error:
            raise AirflowException(f"{self._title}: {error}") from None
        model = evaluation.model
        output = output_asset(self.champion, self.conn_id)
        if not verdict.promoted:
            message = f"{model.uri} is not promoted to {champion}: {verdict.why}."
            if rule.on_reject != "continue":
                raise AirflowSkipException(message) if rule.on_reject == "skip" else AirflowException(message)
            self.log.info("%s", message)
            self.outlets[:] = [outlet for outlet in self.outlets if outlet != output]  # no event: it has not changed
            known = {"weights_sha256": current.weights_sha256} if current.weights_sha256 else {}
            return {"uri": champion, "promoted": False, "why": verdict.why, "metrics": model.numbers, **known}
        self.log.info("%s is promoted to %s: %s.", model.uri, champion, verdict.why)
        result = {
            "promoted": True, "weights_sha256": model.weights_sha256, "metrics": model.numbers, "why": verdict.why,
        }  # fmt: skip
        if output in self.outlets:
            context["outlet_events"][output].extra = result
        self._lineage = lineage.keep(lambda: lineage.describe_promotion(evaluation, champion))
        return {"uri": champion, **result}

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage | None:
        """Return evaluation, model and champion, for the OpenLineage provider; nothing if the champion stays."""
        return lineage.to_openlineage(self._lineage) if self._lineage else None

    @property
    def _title(self) -> str:
        return f"{type(self).__name__} {self.task_id!r}"

    def _options(self) -> PromoteOptions:
        """Return the options, once all templates are rendered. Raises TrainyardError for one that is not valid."""
        fields = {name: getattr(self, name) for name in PromoteOptions.model_fields}
        options, clauses = validation.validated(PromoteOptions, fields)
        if options is None or (clauses := validation.find_masked(self)):
            raise TrainyardError("; ".join(clauses))
        return options
