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
from trainyard.jobs.options.base import HasOptions, Templated, as_lists, default, or_empty
from trainyard.jobs.options.common import ConnectionOptions
from trainyard.jobs.recording import TaskRecorder
from trainyard.models import promotion
from trainyard.models.promotion import Champion, Verdict
from trainyard.schemas.evaluation import Evaluation
from trainyard.schemas.promotion import Rule
from trainyard.schemas.results import PromotionResult
from trainyard.schemas.specs.fields import Output
from trainyard.schemas.version_suffix import add_version

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

OnReject = Literal["skip", "fail", "continue"]


def _evaluation(value: Any) -> Any:
    if not list_uris(value):
        raise ValueError("write evaluate.output, or the URI of an evaluation")
    return value


def list_uris(evaluation: Any) -> list[str]:
    """Return the URIs of the evaluations in an option: a URI, what an evaluation returned, or a list of these."""
    if isinstance(evaluation, str):
        return [evaluation] if evaluation else []
    if isinstance(evaluation, list | tuple):
        found = [list_uris(one) for one in evaluation]
        return [uri for one in found for uri in one] if all(found) else []
    if not isinstance(evaluation, Mapping):
        return []
    if "evaluations" in evaluation:
        return list_uris([*evaluation["evaluations"].values()])
    return list_uris(evaluation.get("evaluation"))


def _describe(evaluation: Evaluation, champion: Champion, verdict: Verdict) -> PromotionResult:
    """Return the result of a promotion, where `champion` is the one before it."""
    model, known = evaluation.model, {}
    if weights := model.weights_sha256 if verdict.promoted else champion.weights_sha256:
        known["weights_sha256"] = weights
    if verdict.promoted and champion.weights_sha256:
        known["replaced"] = champion.weights_sha256
    return PromotionResult(
        uri=champion.uri, promoted=verdict.promoted, why=verdict.why, metrics=model.numbers,
        candidate=add_version(model.uri, model.weights_sha256), **known,
    )  # fmt: skip


class PromoteOptions(Rule, ConnectionOptions):
    """The options of a PromoteOperator."""

    evaluation: Annotated[Any, AfterValidator(_evaluation)]
    """`evaluate.output` of an EvaluateOperator that also scored the champion (`baselines=`). Of several models, which
    `models=` or a mapped EvaluateOperator has evaluated, the best by `metric` of those that fulfill the rule."""
    champion: Output
    """Where the champion is stored: a name below the storage root, or a URI."""
    on_reject: OnReject
    """What happens if the champion stays: `skip` the tasks downstream, `fail`, or `continue` (`promoted` is False)."""


class PromoteOperator(HasOptions, BaseOperator):  # type: ignore[misc]
    """Make a model the champion if its evaluation shows that it is better.

    Returns (XCom): whether the model was `promoted` and `why`, the champion's `uri` and `weights_sha256`, those that it
    `replaced`, and the `candidate` with its `metrics`. With `on_reject="continue"` also when the champion stays; its
    asset has no event then. The run record has that too, but after a rejection with `on_reject="fail"` only the reason,
    as its error.
    """

    OPTIONS = PromoteOptions
    HAS_RECORD = True

    evaluation: Any

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
        self.evaluation = as_lists(self.evaluation)
        try:
            root = TrainyardHook(self.conn_id).get_conn().storage
            recorder, rule = TaskRecorder(context, root, "promote"), self._options()
            champion = uris.resolve(root, rule.champion)
            evaluations = [Evaluation.load(uris.resolve(root, uri)) for uri in list_uris(rule.evaluation)]
            current = promotion.read_champion(champion)
            evaluation, verdict = promotion.choose(evaluations, champion, current.weights_sha256, rule)
            if verdict.promoted:
                promotion.publish(evaluation, current, rule, verdict.why)
        except (TrainyardError, FileNotFoundError) as error:
            raise AirflowException(f"{self._title}: {error}") from None
        result, model = _describe(evaluation, current, verdict), evaluation.model
        message = f"{model.uri} is {'' if verdict.promoted else 'not '}promoted to {champion}: {verdict.why}."
        fails = not verdict.promoted and rule.on_reject == "fail"
        recorder.save(None if fails else result, message if fails else None)
        output = output_asset(self.champion, self.conn_id)
        if not verdict.promoted:
            if rule.on_reject != "continue":
                raise AirflowSkipException(message) if rule.on_reject == "skip" else AirflowException(message)
            self.outlets[:] = [outlet for outlet in self.outlets if outlet != output]  # no event: it has not changed
        self.log.info("%s", message)
        xcom = result.to_xcom()
        if verdict.promoted and output in self.outlets:
            context["outlet_events"][output].extra = {key: value for key, value in xcom.items() if key != "uri"}
        if verdict.promoted:
            self._lineage = lineage.keep(lambda: lineage.describe_promotion(evaluation, champion))
        return xcom

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
