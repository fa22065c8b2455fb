"""The networks of a loop, which all workers have in common."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from weakref import ReferenceType, ref

from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from trainyard.errors import TrainyardError
from trainyard.schemas.specs.strategies import FSDP as FSDPOptions  # noqa: N811
from trainyard.schemas.specs.strategies import StrategyOptions
from trainyard.trainer.checkpointing.checkpoints import Position
from trainyard.trainer.checkpointing.staging import get_local
from trainyard.trainer.measuring.phases import Phases
from trainyard.trainer.model.losses import check_finite_weights
from trainyard.trainer.run.empty_batches import leave_no_trace
from trainyard.trainer.run.gradients.reduction import GradientReducer
from trainyard.trainer.run.hooks import undo_buffers
from trainyard.trainer.run.replicas import Replicas
from trainyard.trainer.strategies.base import broadcast_buffers
from trainyard.trainer.strategies.fsdp import FSDP, check_wrap
from trainyard.trainer.strategies.local import broadcast_weights
from trainyard.trainer.world import World

CAUSES = (
    "Each worker changes it by something else than the averaged gradient: the loop calls loss.backward() instead of "
    "batch.backward(loss), a step depends on the rank or on the loss of one worker (batch.backward returns that of all "
    "workers), or a network was not given to run.prepare()."
)


class Networks:
    """The networks of a loop.

    Args:
        world: The workers.
        phases: The phases of this worker.
        strategy: The options of the strategy: of `fsdp`, which shards each network, or of `allreduce`.

    Attributes:
        are_sharded: Whether the networks are, so that every forward pass is a collective.
        reducer: Averages the gradients of those that are not.
        warnings: What differed between workers by rounding.
    """

    def __init__(self, world: World, phases: Phases, strategy: StrategyOptions) -> None:
        self._world, self._phases, self._strategy = world, phases, strategy
        self._networks = nn.ModuleList()
        self._shardings: list[FSDP] = []
        self._whole, self._classes = dict[int, ReferenceType[nn.Parameter]](), set[str]()
        self._replicas: Replicas | None = None
        self.are_sharded = isinstance(strategy, FSDPOptions) and world.size > 1
        self.reducer = GradientReducer(world, phases.on_communication)
        self.warnings: set[str] = set()

    @property
    def bytes_sent(self) -> int:
        """Bytes that this worker has sent: of gradients, or of each sharded network as in one pass a step."""
        return self.reducer.bytes_sent + sum(sharding.bytes_sent for sharding in self._shardings)

    def add(self, network: nn.Module) -> None:
        """Add a network, which is moved to the device of this worker with the weights of rank 0, and sharded."""
        if self.are_sharded:
            self._shard(network)
            return
        network.to(self._world.device)
        broadcast_weights(network, self._world)
        self._networks.append(network)
        self.reducer.add(network)

    def _shard(self, network: nn.Module) -> None:
        assert isinstance(self._strategy, FSDPOptions)
        if any(network is known for known in self._networks):
            return
        parameters = list(network.parameters())
        if any(isinstance(parameter, DTensor) or self._was_sharded(parameter) for parameter in parameters):
            raise TrainyardError(
                f"strategy='fsdp': the {type(network).__name__} that run.prepare() or run.model() got shares "
                "parameters with another network that is sharded already. Give it the outermost network alone, or "
                "write strategy='allreduce'."
            )
        self._whole |= {id(parameter): ref(parameter) for parameter in parameters}
        self._classes.update(type(module).__name__ for module in network.modules())
        sharding = FSDP(self._strategy, self._world, is_of_loop=True)
        self._networks.append(sharding.wrap_model(network, self._phases.on_communication))
        self._shardings.append(sharding)

    def _was_sharded(self, parameter: nn.Parameter) -> bool:
        """Return whether a parameter was replaced by one of shards."""
        known = self._whole.get(id(parameter))
        return known is not None and known() is parameter

    def begin_step(self, has_rows: bool) -> AbstractContextManager[None]:
        """Return the context of the passes of a step: one without rows changes no gradients and no buffers."""
        for sharding in self._shardings:
            sharding.micro_batch(last=True)
        return nullcontext() if has_rows else self.leave_out_rows()

    def leave_out_rows(self) -> AbstractContextManager[None]:
        """Return the context of passes of rows that do not count."""
        return leave_no_trace(self._networks) if self.are_sharded else undo_buffers()

    def begin(self, optimizers: Sequence[Optimizer]) -> None:
        """Compare the networks and the state of their optimizers from now on.

        Raises:
            TrainyardError: The option `wrap` names a class that no network has.
        """
        if self.are_sharded and isinstance(self._strategy, FSDPOptions):
            check_wrap(self._strategy.wrap, self._classes)
        self._replicas = Replicas(self._networks, optimizers, self._world, CAUSES)

    def is_trained(self, network: nn.Module) -> bool:
        """Return whether parameters of a network require a gradient."""
        return any(parameter.requires_grad for parameter in network.parameters())

    def has_parameter(self, tensor: Tensor) -> bool:
        """Return whether a tensor is a parameter of a network."""
        return self.reducer.reduces(tensor) or any(tensor is parameter for parameter in self._networks.parameters())

    def list_trained(self) -> list[nn.Module]:
        """Return the networks of which parameters require a gradient."""
        return [network for network in self._networks if self.is_trained(network)]

    def synchronize(self) -> None:
        """Copy buffers from rank 0 to all workers."""
        broadcast_buffers(self._networks, self._world)

    def check(self, position: Position, with_buffers: bool) -> None:
        """Check that all workers have the same weights. All of them must call this. Raises TrainyardError if not."""
        if self._replicas and self._world.size > 1:
            with self._phases.waiting():
                warning = self._replicas.check(position, with_buffers)
            self.warnings |= {warning} if warning else set()

    def check_finite(self, position: Position) -> None:
        """Check that no weight diverged. Raises TrainyardError if one did."""
        trained = (parameter for parameter in self._networks.parameters() if parameter.requires_grad)
        check_finite_weights(map(get_local, trained), position.epoch, position.step)
