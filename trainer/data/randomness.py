"""Random numbers of a function of whole batches, which runs in a thread beside the training loop.

torch's random functions draw from one generator of the process: the numbers of a transform would depend on how far the
loop is, and those of the loop, such as dropout, on how far the transform is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

RANDOM_FUNCTIONS: frozenset[Callable[..., Any]] = frozenset({
    torch.rand, torch.randn, torch.randint, torch.randperm, torch.rand_like, torch.randn_like, torch.randint_like,
    torch.normal, torch.bernoulli, torch.multinomial, torch.poisson, torch.binomial,
    torch._standard_gamma, torch._sample_dirichlet,
    Tensor.uniform_, Tensor.normal_, Tensor.random_, Tensor.bernoulli, Tensor.bernoulli_, Tensor.multinomial,
    Tensor.exponential_, Tensor.geometric_, Tensor.log_normal_, Tensor.cauchy_,
})  # fmt: skip
"""Functions that take a generator."""


class SeededRandom(TorchFunctionMode):
    """Make random functions on the CPU draw from a generator of their own, in the body of a `with` and in this thread.

    Dropout, `torch.nn.init` and gumbel_softmax take no generator, and the modules `random` and `numpy.random` are not
    torch's: these still draw from the generators of the process.

    Args:
        seed: Numbers that the generator is seeded by.
    """

    def __init__(self, seed: Sequence[int]) -> None:
        super().__init__()
        words = [part % 2**64 for part in seed]
        state = int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])
        self._generator = torch.Generator().manual_seed(state)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch, with the generator if it takes one and has none."""
        options = dict(kwargs or {})
        if func in RANDOM_FUNCTIONS and options.get("generator") is None and _is_on_cpu(args, options):
            options["generator"] = self._generator
        return func(*args, **options)


def _is_on_cpu(args: tuple[Any, ...], options: Mapping[str, Any]) -> bool:
    if (device := options.get("device")) is not None:
        return torch.device(device).type == "cpu"
    return all(value.device.type == "cpu" for value in args if isinstance(value, Tensor))


def set_seed(seed: int, device: torch.device) -> None:
    """Set the seed of torch's random functions on the CPU and on a device."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index].manual_seed(seed)
