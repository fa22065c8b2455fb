"""A training loop of the user's own, with the guarantees of that of a recipe.

>>> from digits.recipe import convnet
>>> def train(run: Run, rate: float = 0.1) -> None:
...     net = run.model(convnet)
...     optimizer = torch.optim.SGD(net.parameters(), rate)
...     run.track(net=net, optimizer=optimizer)
...     for batch in run.steps():
...         optimizer.zero_grad()
...         loss = functional.cross_entropy(net(batch), batch["label"])
...         batch.backward(loss)
...         optimizer.step()
...         batch.report(loss=loss)
...     run.publish(net)
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from trainyard.errors import TrainyardError
from trainyard.schemas.runs.phases import Phase
from trainyard.schemas.specs.strategies import Allreduce, StrategyOptions
from trainyard.schemas.specs.train import TrainOptions
from trainyard.trainer.checkpointing.checkpoints import Checkpoints, Position
from trainyard.trainer.data.loader import Loader, LocalBatch
from trainyard.trainer.data.randomness import set_seed
from trainyard.trainer.measuring.phases import Phases
from trainyard.trainer.measuring.progress import Progress
from trainyard.trainer.measuring.tracking import Tracker
from trainyard.trainer.model.losses import check_finite_loss, check_is_mean
from trainyard.trainer.model.network import Network
from trainyard.trainer.model.optimizer import describe_optimizer
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.run.batch import Batch
from trainyard.trainer.run.epochs import Epochs
from trainyard.trainer.run.gradients.step_gradients import StepGradients
from trainyard.trainer.run.history import History
from trainyard.trainer.run.hooks import refuse_optimizers
from trainyard.trainer.run.models import Builder, Model, find_path
from trainyard.trainer.run.networks import Networks
from trainyard.trainer.run.saved_run import SavedRun
from trainyard.trainer.run.signals.control_sync import Termination
from trainyard.trainer.run.signals.interruptions import Interruptions
from trainyard.trainer.run.tracked import check_stateful
from trainyard.trainer.run.used_options import UsedOptions
from trainyard.trainer.world import World

LOSS_CHECK_STEPS = 20


class Run:
    """The training of a loop of your own: `TrainOperator(loop="module:function")` calls the function with it.

    The options of the task have epochs, batch size, seed and the like. A batch counts as done when the loop asks for
    the next one, or ends: then checkpoints are saved, at the times that the options say and after a SIGTERM. A run
    that resumes calls the function again, and its first batch is the next one.

    Attributes:
        options: The options of the training.
        device: The device of this worker.
        is_main: Whether this is rank 0, which alone should write files.
        history: The metrics of the epochs that are done.
    """

    device: torch.device
    is_main: bool

    def __init__(
        self,
        *,
        options: TrainOptions,
        world: World,
        phases: Phases,
        builder: Builder,
        termination: Termination,
        checkpoints: Checkpoints | None = None,
        trackers: Sequence[Tracker] = (),
        micro_batches: int = 1,
        strategy: StrategyOptions = Allreduce(),  # noqa: B008  it cannot be changed
    ) -> None:
        self.options, self.device, self.is_main = options, world.device, world.is_main
        self._world, self._phases, self._builder, self._trackers = world, phases, builder, trackers
        self._checkpoints, self._interruptions = checkpoints, Interruptions(options, world, termination, checkpoints)
        self._networks, self._epochs = Networks(world, phases, strategy), Epochs(options, world)
        self._saved = SavedRun(options, world, phases, self._networks, self._epochs, checkpoints)
        self._models: list[Model] = []
        self._loader: Loader | None = None
        self._progress: Progress | None = None
        self._open: Batch | None = None
        self._gradients = StepGradients(world, self._networks.reducer)
        self._hooks, self._step_hooks, self._phase = ExitStack(), ExitStack(), ExitStack()
        self._used = UsedOptions(options, self.device, micro_batches)
        self.optimizers: list[str] = []
        """The optimizers and schedules that are tracked, as texts."""
        self.published: Model | None = None
        """What `publish` was called with."""
        self.is_sharded = self._networks.are_sharded

    @property
    def history(self) -> History:
        """The metrics of the epochs that are done."""
        return self._epochs.history

    @property
    def rows(self) -> int:
        """The rows of an epoch."""
        return self._loader.order.rows if self._loader else 0

    @property
    def warnings(self) -> set[str]:
        """What may be wrong, a sentence each."""
        return self._networks.warnings

    @property
    def bytes_sent(self) -> int:
        """Bytes that this worker has sent to average gradients."""
        return self._networks.bytes_sent

    @property
    def steps_in_epoch(self) -> int:
        """The number of global batches of an epoch, once `steps` was called."""
        return self._loader.order.steps if self._loader else 0

    def model(self, recipe: str | Callable[..., Recipe], /, **params: Any) -> Network:
        """Return the network that a recipe builds, on the device of this worker.

        It is called with a batch, or any dict of the recipe's feature columns, and normalizes them as the recipe says.
        Of the recipe count `model`, `features`, `label`, `normalize`, `decode`, `augment`, `transform`, `sequences`,
        `start_from`, `freeze` and `predict`; how to train is what the loop does.

        Args:
            recipe: A function of a module that returns a `Recipe`, or its import path. Import it where the loop is
                defined: a package that only a path names is not shipped to the workers.
            params: Its parameters: values that JSON has.

        Raises:
            TrainyardError: The function is not found, or its recipe does not match the dataset.
        """
        built = self._builder.build_model(find_path(recipe), params)
        self._models.append(built)
        self.warnings.update(built.warnings)
        self.prepare(built.network)
        return built.network

    def prepare(self, *networks: nn.Module) -> Any:
        """Move networks to the device, with the weights of rank 0, and return them.

        These are the further networks of a loop: a teacher, a discriminator. Their gradients are averaged too. A
        network that is only used can be frozen with `requires_grad_(False)`.
        """
        for network in networks:
            self._networks.add(network)
        return networks[0] if len(networks) == 1 else networks

    def track(self, /, **objects: Any) -> None:
        """Save objects with each checkpoint, and restore them in place now if the run resumes.

        Args:
            objects: All that changes in training, by name: networks, optimizers, schedules, and others that have
                `state_dict` and `load_state_dict`, whose state is the same on all workers. Call this once, before
                `steps`.

        Raises:
            TrainyardError: An object cannot be saved, or the checkpoint has others.
        """
        if self._saved.objects:
            raise TrainyardError("run.track() was called twice; name all objects in one call, before run.steps().")
        check_stateful(objects)
        self._saved.track(objects, self._models)

    def steps(self, columns: Sequence[str] = ()) -> Iterator[Batch]:
        """Iterate over the batches of all epochs that are left.

        All workers do the same steps. Random numbers of torch in a step depend on the seed, the step and the worker;
        those of `batch.randn` on the seed, the step and the row.

        Args:
            columns: The columns of a batch, beside those of the recipe that `model` was called with first.

        Raises:
            TrainyardError: What is trained is not tracked, or an option does not match the dataset.
        """
        if self._loader:
            raise TrainyardError("run.steps() was called twice; one loop has the batches of all epochs.")
        self._saved.check_tracked(self._models)
        self._loader = self._builder.build_loader("train", self._get_recipe(), columns, trains=True)
        self._builder.check(self._models, self._loader)
        optimizers = [value for value in self._saved.objects.values() if isinstance(value, Optimizer)]
        self._networks.begin(optimizers)
        schedules = [value for value in self._saved.objects.values() if isinstance(value, LRScheduler)]
        self.optimizers = [*map(describe_optimizer, optimizers), *(type(each).__name__ for each in schedules)]
        tracked = {id(optimizer) for optimizer in optimizers}
        self._hooks.enter_context(refuse_optimizers(lambda own: id(own) in tracked, self._networks.has_parameter))
        return self._iterate(self._loader)

    def batches(self, split: str = "validation", columns: Sequence[str] = ()) -> Iterator[Batch]:
        """Iterate over this worker's batches of a split, in stored order; report what they measure on each of them.

        All workers call this, at the end of an epoch for example (`batch.ends_epoch`), and may have different numbers
        of batches. Buffers such as the statistics of batch normalization are those of rank 0 from then on. Each call
        reads the split again.

        Args:
            split: The name of the split.
            columns: The columns of a batch, beside those of the first recipe.
        """
        self._step_hooks.close()
        self._networks.synchronize()
        loader = self._builder.build_loader(split, self._get_recipe(), columns, trains=False)
        position = self._saved.position
        self._enter(Phase.VALIDATE)
        for local in loader.epoch(0):
            self._phases.current.enter(Phase.VALIDATE)
            if local.rows or self._networks.are_sharded:
                yield self._build_batch(local, position.epoch, position.updates, split)
        self._enter(Phase.FORWARD)

    def report(self, /, **values: Tensor | float) -> None:
        """Report values of the epoch that are no means of rows; those of rank 0 count.

        With `batch.report` they are its metrics: in the log, the curves of the report, trackers and the task's result.
        The option `monitor` names the one that the best epoch is chosen by.
        """
        for name, value in values.items():
            self._epochs.metrics.set(name, value)

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context of a forward pass in the option `precision`."""
        return self._used.autocast()

    def publish(self, network: nn.Module) -> None:
        """Write a network as the model of this task, when the loop has returned: with the weights of the best epoch.

        The best epoch is that of the option `monitor`; without a reported "loss" or "validation_loss" the last one.

        Args:
            network: One that `model` has returned.

        Raises:
            TrainyardError: It is another one, a second one, or the monitored metric was NaN in all epochs.
        """
        if self.published:
            raise TrainyardError("run.publish() was called twice; a task writes one model, after the loop.")
        if (published := next((built for built in self._models if built.network is network), None)) is None:
            raise TrainyardError(
                f"run.publish() got a {type(network).__name__} that run.model() has not returned. Build what is "
                "published by run.model(recipe): evaluations and predictions build it again by its recipe."
            )
        if self._loader is None:
            raise TrainyardError("run.publish() was called before run.steps(); publish a network after its training.")
        self._end_early(self._loader)
        self._enter(None)
        self._saved.load_best(network)
        self.published = published

    def close(self) -> None:
        """Wait for the last checkpoint. Raises TrainyardError if nothing was published."""
        self._enter(None)
        if self.published is None:
            raise TrainyardError("the loop has returned without run.publish(network); publish the trained network.")
        if self._checkpoints:
            self._checkpoints.wait()

    def remove_hooks(self) -> None:
        """Remove the hooks of torch that the loop has needed."""
        self._step_hooks.close()
        self._hooks.close()
        self._networks.reducer.remove_hooks()

    def count_parts(self, count: int | None) -> int:
        """Return in how many parts a batch is processed; see `Batch.parts`."""
        return self._used.count_parts(count)

    def backward(self, loss: Tensor, batch: Batch, **options: Any) -> Tensor:
        """Add the gradient of a loss to those of a step; see `Batch.backward`."""
        check_is_mean(loss)
        if not batch.trains:
            raise TrainyardError(
                "backward() of a batch of run.batches(), of which workers have different numbers; train on the batches "
                "of run.steps()."
            )
        self._enter(Phase.BACKWARD)
        mean = self._gradients.add(loss, batch, **options)
        self._enter(Phase.OPTIMIZER if batch.is_last else Phase.FORWARD)
        return mean

    def leave_out_rows(self) -> AbstractContextManager[None]:
        """Return the context of the passes of a part without rows; see `Batch.parts`."""
        return self._networks.leave_out_rows()

    def add_means(self, batch: Batch, means: Mapping[str, Tensor | float]) -> None:
        """Add means of the rows of a batch to the metrics of the epoch; see `Batch.report`."""
        for name, mean in means.items():
            self._epochs.metrics.add(name, mean, batch.rows)

    def _get_recipe(self) -> Recipe | None:
        return self._models[0].recipe if self._models else None

    def _iterate(self, loader: Loader) -> Iterator[Batch]:
        self._progress = Progress(self.options.epochs, loader.order, self.is_main, self._phases, self._trackers)
        while not self._epochs.is_finished(self._saved.position.epoch):
            position = self._saved.position
            self._epochs.begin(position.step, self.bytes_sent)
            self._progress.begin_epoch(position.epoch, position.step)
            self._phases.current.epoch, self._phases.current.step = position.epoch, position.step
            for local in self._phases.measure_data_wait(loader.epoch(position.epoch, position.step)):
                self._open = self._begin_step(local)
                yield self._open
                if self.published or self._open is None:
                    raise TrainyardError("run.publish() was called within the loop over run.steps(); call it after it.")
                self._end_step(self._open)
                self._open = None
            self._end_epoch(loader, is_left=False)

    def _begin_step(self, local: LocalBatch) -> Batch:
        updates = self._saved.position.updates
        set_seed(hash((self.options.seed, updates, self._world.rank)), self.device)
        self._step_hooks.enter_context(self._networks.begin_step(has_rows=local.rows > 0))
        self._gradients.begin(updates)
        self._enter(Phase.FORWARD)
        return self._build_batch(local, self._saved.position.epoch, updates, None)

    def _build_batch(self, local: LocalBatch, epoch: int, updates: int, split: str | None) -> Batch:
        trains, name = split is None, zlib.crc32((split or "").encode())
        columns = {name: column.to(self.device, non_blocking=True) for name, column in local.columns.items()}
        return Batch(
            self, columns, local.rows, local.total, local.total * self._world.rank // self._world.size, epoch,
            local.step, (self.options.seed, epoch, updates, name, local.step),
            ends_epoch=trains and local.step == self.steps_in_epoch - 1, trains=trains,
        )  # fmt: skip

    def _end_step(self, batch: Batch) -> None:
        """Count a batch as done, and save or end if either is due; after an epoch `_end_epoch` does so."""
        self._enter(None)
        self._step_hooks.close()
        self._gradients.end()
        saved, done = self._saved, batch.step + 1
        saved.position = Position(saved.position.updates + 1, batch.epoch, done)
        self._phases.current.step = done
        if batch.step % LOSS_CHECK_STEPS == 0 or batch.ends_epoch:
            self._show_progress(batch)
        if batch.ends_epoch:
            return
        save, terminate = self._interruptions.after_step(saved.position.updates, saved.updates_since_save)
        if save:
            saved.save()
        if terminate:
            self._interruptions.terminate(saved.position)

    def _show_progress(self, batch: Batch) -> None:
        metrics = self._epochs.metrics
        if (name := metrics.first) and self._progress:
            value = metrics.read_own(name)
            if name == "loss":
                check_finite_loss(value, batch.epoch, batch.step + 1)
            self._progress.end_step(batch.step + 1, value, name)

    def _end_epoch(self, loader: Loader, is_left: bool) -> None:
        """Merge the metrics of an epoch, keep its weights if it is the best, and save a checkpoint."""
        self._gradients.end_epoch(is_left)
        self._used.check()
        saved = self._saved
        self._networks.synchronize()
        self._networks.check(saved.position, with_buffers=True)
        self._networks.check_finite(saved.position)
        with self._phases.waiting() if self._world.size > 1 else nullcontext():
            is_best = self._epochs.end(loader.order, saved.position, self.bytes_sent)
        if is_best:
            saved.keep_best()
        saved.position = Position(saved.position.updates, saved.position.epoch + 1, 0)
        saved.save()
        if self._progress:
            self._progress.end_epoch(self.history.epochs[-1])
        if self._interruptions.after_epoch(saved.position.updates):
            self._interruptions.terminate(saved.position)

    def _end_early(self, loader: Loader) -> None:
        """Count what was done of an epoch that the loop has left."""
        if self._open:
            batch, self._open = self._open, None
            self._end_step(batch)
            self.history.stopped_early = True
        if self._saved.position.step:
            self._end_epoch(loader, is_left=True)

    def _enter(self, phase: Phase | None) -> None:
        """Measure what follows as a phase, or as none."""
        self._phase.close()
        if phase:
            self._phase.enter_context(self._phases.measure(phase))
