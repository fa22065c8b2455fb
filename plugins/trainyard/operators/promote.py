"""Promote: the better of two models becomes the champion, or the DAG stops here."""

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
    """Makes a model the champion when its evaluation says that it is better; returns the champion's `uri`.

    :param evaluation: `evaluate.output`, of an EvaluateOperator that scored the champion too (`baselines=`)
    :param champion: where the champion's bundle lies: a name below the storage root, or an absolute URI
    :param metric: the one that decides
    :param margin: by how much it must be better; negative where a little worse will do
    :param confident: whether the whole interval of the difference must be beyond the margin
    :param required: what metrics must be at least (errors: at most), whatever the champion's are
    :param on_reject: what becomes of what comes after when the champion stays: `skip`, or `fail`
    :param conn_id: connection of type `trainyard`, which says where things are stored
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
            raise TrainyardError(f"{self._title}: on_reject={on_reject!r} is neither 'skip' nor 'fail'.")
        if not is_pending([metric, margin, required or {}]):
            self._rule()
        if not is_pending(champion):
            self.outlets.append(Asset(champion))

    def execute(self, context: Context) -> dict[str, Any]:
        """Promote, or skip or fail with the reason."""
        try:
            root = TrainyardHook(self.conn_id).get_conn().storage
            champion, rule = storage.resolve(root, self.champion), self._rule()
            given = self.evaluation["evaluation"] if isinstance(self.evaluation, Mapping) else self.evaluation
            found = Evaluation.load(storage.resolve(root, given))
            verdict = promotion.judge(found, champion, promotion.reigning(champion), rule)
            if verdict.promoted:
                promotion.publish(found, champion, rule, verdict.why)
        except (TrainyardError, FileNotFoundError) as error:
            raise AirflowException(f"{self._title}: {error}") from None
        if not verdict.promoted:
            why = f"{found.model.uri} is not promoted to {champion}: {verdict.why}."
            raise AirflowSkipException(why) if self.on_reject == "skip" else AirflowException(why)
        self.log.info("%s is promoted to %s: %s.", found.model.uri, champion, verdict.why)
        told = {"weights_sha256": found.model.weights_sha256, "metrics": found.model.metrics, "why": verdict.why}
        for asset in self.outlets:
            if isinstance(asset, Asset) and asset.name == self.champion:
                context["outlet_events"][asset].extra = told
        return {"uri": champion, **told}

    @property
    def _title(self) -> str:
        return f"{type(self).__name__} {self.task_id!r}"

    def _rule(self) -> Rule:
        """Raises TrainyardError for a rule that can decide nothing."""
        given = {name: getattr(self, name) for name in ("metric", "margin", "confident")}
        try:
            rule = Rule.model_validate(given | {"required": self.required or {}})
        except ValidationError as error:
            raise TrainyardError(f"{self._title}: {complaints(error)}.") from error
        for name in (rule.metric, *rule.required):
            if not metrics.known(name) or not metrics.sign(name):
                raise TrainyardError(
                    f"{self._title}: of metric {name!r} it is not known which way is better; choose among "
                    f"{', '.join(n for n in (*metrics.CLASSIFICATION, *metrics.REGRESSION) if metrics.sign(n))}, and "
                    f"{', '.join(metrics.RANKING)}."
                )
        return rule
