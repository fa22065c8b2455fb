"""Promote: replace the champion by a better model, or stop the DAG here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from airflow.sdk import Asset, BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowSkipException
from pydantic import ValidationError

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.hooks.trainyard import TrainyardHook
from trainyard.jobs.options import Templated, default
from trainyard.jobs.validation import is_pending
from trainyard.operators import promotion
from trainyard.schemas.document import complaints
from trainyard.schemas.evaluation import Evaluation
from trainyard.schemas.promotion import Rule
from trainyard.schemas.specs import metrics

if TYPE_CHECKING:
    from airflow.sdk import Context

OnReject = Literal["skip", "fail"]


class PromoteOperator(BaseOperator):  # type: ignore[misc]
    """Make a model the champion if its evaluation shows that it is better.

    Returns (XCom): the champion's `uri`, its `weights_sha256` and `metrics`, and `why` it was promoted.

    Args:
        evaluation: `evaluate.output` of an EvaluateOperator that also scored the champion (`baselines=`).
        champion: Where the champion is stored: a name below the storage root, or a URI.
        metric: The metric that decides.
        margin: By how much it must be better. A negative margin accepts a slightly worse model.
        confident: Whether the whole confidence interval of the difference must exceed the margin.
        required: Metric -> the value it must reach (for errors: not exceed), whatever the champion's is.
        on_reject: What happens when the champion stays: `skip` the tasks downstream, or `fail`.
        conn_id: The connection of type `trainyard`, with the storage.
    """

    template_fields: ClassVar[Sequence[str]] = ("evaluation", "champion", "metric", "margin", "required", "conn_id")
    ui_color = "#dfeee6"

    def __init__(
        self,
        *,
        evaluation: Any,
        champion: str,
        metric: str,
        margin: Templated[float] = default(Rule, "margin"),
        confident: bool = default(Rule, "confident"),
        required: dict[str, Templated[float]] | None = None,
        on_reject: OnReject = "skip",
        conn_id: str = "trainyard_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.evaluation = evaluation
        self.champion = champion
        self.metric = metric
        self.margin = margin
        self.confident = confident
        self.required = required
        self.on_reject = on_reject
        self.conn_id = conn_id
        if on_reject not in get_args(OnReject):
            raise TrainyardError(f"{self._title}: on_reject={on_reject!r} is not valid; write 'skip' or 'fail'.")
        if not is_pending([metric, margin, required or {}]):
            self._rule()
        if not is_pending(champion):
            self.outlets.append(Asset(champion))

    def execute(self, context: Context) -> dict[str, Any]:
        """Promote the model, or skip or fail with the reason."""
        try:
            root = TrainyardHook(self.conn_id).get_conn().storage
            champion, rule = storage.resolve(root, self.champion), self._rule()
            uri = self.evaluation["evaluation"] if isinstance(self.evaluation, Mapping) else self.evaluation
            evaluation = Evaluation.load(storage.resolve(root, uri))
            verdict = promotion.decide(evaluation, champion, promotion.champion_weights(champion), rule)
            if verdict.promoted:
                promotion.publish(evaluation, champion, rule, verdict.why)
        except (TrainyardError, FileNotFoundError) as error:
            raise AirflowException(f"{self._title}: {error}") from None
        model = evaluation.model
        if not verdict.promoted:
            message = f"{model.uri} is not promoted to {champion}: {verdict.why}."
            raise AirflowSkipException(message) if self.on_reject == "skip" else AirflowException(message)
        self.log.info("%s is promoted to %s: %s.", model.uri, champion, verdict.why)
        result = {"weights_sha256": model.weights_sha256, "metrics": model.metrics, "why": verdict.why}
        for asset in self.outlets:
            if isinstance(asset, Asset) and asset.name == self.champion:
                context["outlet_events"][asset].extra = result
        return {"uri": champion, **result}

    @property
    def _title(self) -> str:
        return f"{type(self).__name__} {self.task_id!r}"

    def _rule(self) -> Rule:
        """Return the rule. Raises TrainyardError for one that cannot decide."""
        fields = {name: getattr(self, name) for name in ("metric", "margin", "confident")}
        try:
            rule = Rule.model_validate(fields | {"required": self.required or {}})
        except ValidationError as error:
            raise TrainyardError(f"{self._title}: {complaints(error)}.") from error
        for name in (rule.metric, *rule.required):
            if not metrics.is_known(name) or not metrics.sign(name):
                ordered = [n for n in (*metrics.CLASSIFICATION, *metrics.REGRESSION) if metrics.sign(n)]
                raise TrainyardError(
                    f"{self._title}: metric {name!r} has no known direction, so it cannot decide; write one of "
                    f"{', '.join(ordered)}, {', '.join(metrics.RANKING)}."
                )
        return rule
