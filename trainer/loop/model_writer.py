"""Write the model of a training, after an epoch and at the end, and check what was written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.errors import TrainyardError
from trainyard.schemas import model_artifact as artifacts
from trainyard.schemas.datasets.manifest import Column, DatasetManifest
from trainyard.schemas.model_artifact import ModelArtifact, Normalization
from trainyard.schemas.runs.phases import Phase
from trainyard.schemas.specs.strategies import StrategyOptions
from trainyard.schemas.specs.train import TrainOptions
from trainyard.trainer.checkpointing.optimizer_state import check_restorable
from trainyard.trainer.data.mixture import Portion
from trainyard.trainer.formats import export
from trainyard.trainer.measuring.phases import Phases
from trainyard.trainer.model.artifacts import artifact, weights
from trainyard.trainer.model.artifacts.weights import WrittenWeights
from trainyard.trainer.model.network import Network
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.run.history import History
from trainyard.trainer.verification.check import ModelCheck, Output
from trainyard.trainer.world import World


@dataclass(frozen=True)
class Job:
    """The checked arguments of `fit`."""

    recipe: str
    params: dict[str, Any]
    dataset: str
    manifest: DatasetManifest
    mix: Sequence[Portion]
    model: str
    start_from: str | None
    options: TrainOptions
    strategy: StrategyOptions
    world: World
    phases: Phases
    application: str

    @property
    def manifests(self) -> list[DatasetManifest]:
        """The dataset and those of the mixture."""
        return [self.manifest, *(portion.manifest for portion in self.mix)]


class ModelWriter:
    """Write the model of a job, after an epoch and at the end."""

    def __init__(
        self,
        job: Job,
        network: Network,
        inputs: tuple[Column, ...],
        labels: Mapping[str, Column],
        normalization: Mapping[str, Normalization],
        is_sharded: bool,
        check: ModelCheck | None,
        warnings: set[str],
    ) -> None:
        self._job, self._network, self._is_sharded = job, network, is_sharded
        self._inputs, self._labels, self._normalization = inputs, labels, normalization
        self._check, self._warnings = check, warnings

    def count_parameters(self) -> int:
        """Return the number of the model's parameters."""
        return sum(parameter.numel() for parameter in self._network.parameters())

    def check_untrained(self, recipe: Recipe, has_checkpoints: bool) -> None:
        """Check on rank 0 that the untrained model can be written and loaded. All workers must call this.

        Args:
            recipe: The recipe.
            has_checkpoints: Whether the state of its optimizer is saved, too.

        Raises:
            TrainyardError: It cannot; all workers raise this.
        """

        def write(uri: str, network: Network) -> ModelArtifact:
            written = weights.write(uri, network.model)
            assert written
            return self._build(written, {}, 0, 0.0)

        def check() -> str | None:
            if has_checkpoints and not self._is_sharded:
                check_restorable(recipe, self._network)
            return self._check.check_untrained(self._job.model, write) if self._check else None

        self._run_check(check)

    def apply(self) -> Output | None:
        """Return the output of the trained model, None if another worker has it. All workers must call this."""
        return self._check.apply() if self._check else None

    def write_epoch(self, history: History) -> None:
        """Write the model of the last epoch, a model of its own, and note it. All workers must call this."""
        job, number = self._job, len(history.epochs)
        with job.phases.measure(Phase.WRITE_MODEL):
            uri, seconds = artifacts.epoch_model_uri(job.model, number), sum(job.phases.totals.values())
            written, output = self.write_weights(uri), self.apply()
            saved = self._build(written, history.epochs[-1], number, seconds) if written else None
            self._run_check(lambda: self._save(uri, saved, output) if saved and output else None)
            if saved:
                artifact.publish(uri, saved)
                history.models.append({"uri": uri, "weights_sha256": saved.weights_sha256})

    def write_weights(self, uri: str) -> WrittenWeights | None:
        """Write the tensors of the network below `uri`, without an artifact yet. All workers must call this."""
        job = self._job
        if not (job.world.is_main or self._is_sharded):
            return None
        return weights.write(uri, self._network.model, job.world.is_main, job.phases.current.report_progress)

    def write(
        self, history: History, written: WrittenWeights, output: Output, seconds: float, formats: Sequence[str]
    ) -> tuple[ModelArtifact, dict[str, str]]:
        """Write the trained model and its further formats, and make it the current one."""
        job = self._job
        with job.phases.measure(Phase.WRITE_MODEL):
            saved = self._build(written, history.epochs[history.best], len(history.epochs), seconds)
            self._warn(self._save(job.model, saved, output))
            prediction = self._check.predict(output) if self._check and formats else None
            uris = export.write_formats(job.model, saved, formats, prediction)
            artifact.publish(job.model, saved)
        return saved, uris

    def _save(self, uri: str, saved: ModelArtifact, output: Output) -> str | None:
        """Write an artifact, and check that it computes the `output` of the trained model."""
        artifact.save(uri, saved)
        return self._check.check(uri, saved, output) if self._check else None

    def _run_check(self, check: Callable[[], str | None]) -> None:
        """Run a check on rank 0, of which all workers raise the error, and none waits for a worker that has failed."""
        error: Exception | None = None
        try:
            self._warn(check() if self._job.world.is_main else None)
        except Exception as raised:
            error = raised
        text = self._job.world.gather(None if error is None else str(error))[0]
        if error or text:
            raise error or TrainyardError(text)

    def _warn(self, text: str | None) -> None:
        if text:
            self._warnings.add(text)

    def _build(
        self, written: WrittenWeights, metrics: Mapping[str, float], epochs: int, seconds: float
    ) -> ModelArtifact:
        job = self._job
        return artifact.build(
            written, recipe=job.recipe, recipe_params=job.params, inputs=self._inputs, labels=self._labels,
            normalization=self._normalization, start_from=job.start_from, dataset=job.dataset, manifest=job.manifest,
            mix=job.mix, metrics=metrics, epochs=epochs, workers=job.world.size, seconds=seconds,
            device=job.world.device.type, application=job.application,
        )  # fmt: skip
