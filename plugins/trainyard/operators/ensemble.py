"""Ensemble: make one model of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from airflow.sdk import BaseOperator
from pydantic import Field

from trainyard.compat import AirflowException
from trainyard.errors import TrainyardError
from trainyard.files import uris
from trainyard.hooks.trainyard import TrainyardHook
from trainyard.jobs import lineage
from trainyard.jobs.assets import output_asset
from trainyard.jobs.options import validation
from trainyard.jobs.options.base import HasOptions, Templated, as_lists
from trainyard.jobs.options.common import ConnectionOptions
from trainyard.jobs.options.locations import explain_shared_output, name_output
from trainyard.jobs.pinning import pin_model
from trainyard.jobs.recording import TaskRecorder
from trainyard.models import ensembles
from trainyard.schemas import model_artifact
from trainyard.schemas.model_artifact import Combination
from trainyard.schemas.results import EnsembleResult
from trainyard.schemas.specs.fields import Model, Output, refuse_string

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context


class EnsembleOptions(ConnectionOptions):
    """The options of an EnsembleOperator."""

    models: Annotated[tuple[Model, ...], refuse_string("clicks/a", "clicks/b")]
    """The models: names below the storage root, URIs, or results of trainings, which also set the version; or
    `train.output` of a mapped training. They have the same labels, classes and categories."""
    model: Output
    """Where the ensemble is stored: a name below the storage root, or a URI. By default `DAG_ID/TASK_ID`."""
    by: Combination
    """`mean`: of models of classes the mean of their probabilities, else of their outputs. `vote`: the share of the
    votes for each class."""
    weights: tuple[Annotated[float, Field(gt=0)], ...] | None
    """What the output, or the vote, of each model counts. By default they count alike."""


class EnsembleOperator(HasOptions, BaseOperator):  # type: ignore[misc]
    """Make one model of several, with copies of them, which is evaluated, promoted and applied as any other.

    Returns (XCom): `uri` and `weights_sha256` of the ensemble, its `members`, and how they are combined (`by`).
    """

    OPTIONS = EnsembleOptions
    HAS_RECORD = True
    OUTPUT = "model"

    models: Any

    ui_color = "#dfeee6"

    def __init__(
        self,
        *,
        models: Any,
        model: str | None = None,
        by: Templated[Combination] = "mean",
        weights: Sequence[Templated[float]] | None = None,
        conn_id: str = "trainyard_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"multiple_outputs": True} | kwargs)
        self._lineage: lineage.Lineage | None = None
        self.model = name_output(self, self.is_one_of_several) if model is None else model
        self.models = _pin(self.models)
        validation.check(self, EnsembleOptions)
        if output := output_asset(self.model, conn_id):
            self.outlets.append(output)

    def execute(self, context: Context) -> dict[str, Any]:
        """Write the ensemble."""
        self.models = _pin(self.models)
        options = validation.convert(self, EnsembleOptions)
        mapped = getattr(self.dag.task_dict.get(self.task_id), "partial_kwargs", {}) if self.has_dag() else {}
        validation.refuse(self, explain_shared_output("model", mapped))
        try:
            root = TrainyardHook(self.conn_id).get_conn().storage
            recorder = TaskRecorder(context, root, "ensemble")
            found = [model_artifact.find(uris.resolve(root, name)) for name in options.models]
            uri = uris.resolve(root, options.model)
            if uri in [name for name, _ in found]:
                raise TrainyardError(
                    f"model={options.model!r} is one of models=, which the ensemble would replace; write another name."
                )
            ensemble = ensembles.build(found, options.by, options.weights)
            ensembles.save(uri, ensemble)
        except (TrainyardError, FileNotFoundError) as error:
            raise AirflowException(f"{type(self).__name__} {self.task_id!r}: {error}") from None
        members = [f"{name}@{artifact.folder}" for name, artifact in found]
        self.log.info("%s is the %s of %s.", uri, options.by, ", ".join(members))
        result = EnsembleResult(uri=uri, weights_sha256=ensemble.weights_sha256, members=tuple(members), by=options.by)
        recorder.save(result)
        self._lineage = lineage.keep(lambda: lineage.describe_ensemble(members, uri))
        xcom = result.to_xcom()
        if (output := output_asset(self.model, self.conn_id)) in self.outlets:
            context["outlet_events"][output].extra = {key: value for key, value in xcom.items() if key != "uri"}
        return xcom

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage | None:
        """Return the members and the ensemble, for the OpenLineage provider."""
        return lineage.to_openlineage(self._lineage) if self._lineage else None


def _pin(models: Any) -> Any:
    """Return the names of models with their versions, where they are results of other tasks."""
    return pin_model(as_lists(models))
