"""Compare what two models compute, and find the module, attribute or buffer in which they begin to differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

MAX_CALLS = 5_000
"""How many inputs and outputs of modules are compared to find the first one that differs."""
SAMPLED = 4096
"""How many numbers of each of them."""
_OF_EVERY_MODULE = {*vars(nn.Module())}


def measure_difference(expected: Any, actual: Any) -> float:
    """Return by how much two outputs differ: the norm of the difference, relative to the larger norm.

    Args:
        expected: A tensor or array, or a number or text, or a nested structure of these.
        actual: The other one.

    Returns:
        The largest difference of any part; infinity if their structures, shapes, or missing values (NaN) differ.
    """
    (expected_parts, spec), (actual_parts, actual_spec) = tree_flatten(expected), tree_flatten(actual)
    if spec != actual_spec:
        return math.inf
    pairs = zip(expected_parts, actual_parts, strict=True)
    return max((_measure_difference(first, second) for first, second in pairs), default=0.0)


def find_cause(
    trained: nn.Module,
    loaded: nn.Module,
    apply_trained: Callable[[], Any],
    apply_loaded: Callable[[], Any],
    tolerance: float,
) -> str:
    """Return where two models differ first, for an error: the module, and what it uses.

    Args:
        trained: The trained model.
        loaded: A model with the same modules.
        apply_trained: Applies the trained model to some rows.
        apply_loaded: Applies the other model to the same rows.
        tolerance: The difference that is none.
    """
    name = _find_module(_record_calls(trained, apply_trained), _record_calls(loaded, apply_loaded), tolerance)
    module, other = (dict(model.named_modules()).get(name) for model in (trained, loaded))
    assert module is not None
    described = f"{name!r} ({type(module).__name__})" if name else f"{type(trained).__name__}.forward"
    if other and (state := next(_find_state(module, other), None)):
        return f"The first difference arises in {described}: its {state}."
    return f"The first difference arises in {described}.{find_state(trained, loaded)}"


def find_state(trained: nn.Module, loaded: nn.Module) -> str:
    """Return the first buffer that is not saved, or attribute, that differs in two models; "" if there is none."""
    others = dict(loaded.named_modules())
    for name, module in trained.named_modules():
        if name in others and (state := next(_find_state(module, others[name]), None)):
            return f" Of {name or type(loaded).__name__!r}, the {state}."
    return ""


class _Call(NamedTuple):
    """An input or output of a module, and the module in whose forward pass it arose."""

    module: str
    values: list[Tensor]


def _find_module(calls: list[_Call], others: list[_Call], tolerance: float) -> str:
    for call, other in zip(calls, others, strict=False):
        if call.module != other.module or measure_difference(call.values, other.values) > tolerance:
            return call.module
    return ""


def _record_calls(model: nn.Module, apply: Callable[[], Any]) -> list[_Call]:
    """Return the inputs and outputs of modules, in the order in which they arise while a model is applied."""
    calls: list[_Call] = []
    active: list[str] = [""]

    def record(module: str, values: Any) -> None:
        if len(calls) < MAX_CALLS:
            calls.append(_Call(module, [_sample(v) for v in tree_flatten(values)[0] if isinstance(v, Tensor)]))

    def hook(name: str, module: nn.Module) -> Iterator[Any]:
        def begin(_: nn.Module, args: Any, kwargs: Any) -> None:
            record(active[-1], (args, kwargs))  # the caller has computed them
            active.append(name)

        def end(_: nn.Module, args: Any, output: Any) -> None:
            active.pop()
            record(name, output)

        yield module.register_forward_pre_hook(begin, with_kwargs=True)
        yield module.register_forward_hook(end)

    with ExitStack() as stack:
        for name, module in model.named_modules():
            with suppress(RuntimeError, AttributeError):  # a script module has no hooks
                for handle in hook(name, module):
                    stack.callback(handle.remove)
        with suppress(Exception):
            apply()
    return calls


def _sample(tensor: Tensor) -> Tensor:
    flat = _to_dense(tensor.detach()).flatten()
    return flat[:: max(1, len(flat) // SAMPLED)].clone()


def _find_state(trained: nn.Module, loaded: nn.Module) -> Iterator[str]:
    """Yield a description of each buffer that is not saved, and of each attribute, that differs."""
    unsaved = sorted(trained._non_persistent_buffers_set | loaded._non_persistent_buffers_set)
    for name in unsaved:
        yield from _describe("buffer", name, trained._buffers.get(name), loaded._buffers.get(name))
    for name in sorted(vars(trained).keys() - _OF_EVERY_MODULE):
        if "fsdp" in name:  # torch sets it where it shards
            continue
        yield from _describe("attribute", name, vars(trained).get(name), vars(loaded).get(name))


def _describe(kind: str, name: str, value: Any, other: Any) -> Iterator[str]:
    with suppress(Exception):  # of values that cannot be compared
        if measure_difference(value, other) == 0:
            return
        values = ["none" if v is None else _describe_value(v) for v in (value, other)]
        if values[0] == values[1]:
            yield f"{kind} {name!r}, {values[0]}, has other values in the loaded model"
        else:
            yield f"{kind} {name!r} is {values[0]} in the trained model, and {values[1]} in the loaded one"


def _describe_value(value: Any) -> str:
    if isinstance(value, Tensor | np.ndarray):
        return f"{'a tensor' if isinstance(value, Tensor) else 'an array'} {list(value.shape)}"
    if isinstance(value, float):
        return f"{value:.3g}"
    return repr(value) if isinstance(value, str | int) else f"a {type(value).__name__}"


def _measure_difference(expected: Any, actual: Any) -> float:
    if isinstance(expected, bool | int | float | str | bytes | None):
        same = expected == actual or (expected != expected and actual != actual)
        return 0.0 if same and type(expected) is type(actual) else math.inf
    if isinstance(expected, np.ndarray) and isinstance(actual, np.ndarray):
        expected, actual = torch.from_numpy(expected.copy()), torch.from_numpy(actual.copy())
    if not (isinstance(expected, Tensor) and isinstance(actual, Tensor)):
        return 0.0  # other objects: whether they matter, outputs show
    first, second = _to_dense(expected.detach()), _to_dense(actual.detach())
    if first.shape != second.shape or first.dtype != second.dtype:
        return math.inf
    first, second = first.double(), second.double().to(first.device)
    if not torch.equal(first.isnan(), second.isnan()):
        return math.inf
    equal = (first == second) | first.isnan()
    difference: float = torch.where(equal, 0, first - second).norm().item()
    if difference == 0 or not math.isfinite(difference):
        return 0.0 if difference == 0 else math.inf
    norms: list[float] = [part[part.isfinite()].norm().item() for part in (first, second)]
    return difference / max(norms)


def _to_dense(tensor: Tensor) -> Tensor:
    """Return the numbers of a tensor that may be nested, sparse, quantized or complex."""
    if tensor.is_nested:
        return tensor.values()
    if tensor.is_quantized:
        return tensor.dequantize()
    dense = tensor.to_dense() if tensor.layout != torch.strided else tensor
    return torch.view_as_real(dense) if dense.is_complex() else dense
