"""Modules whose gradients are sparse, as of `nn.Embedding(sparse=True)`."""

from __future__ import annotations

from torch import nn

from trainyard.errors import TrainyardError


def refuse_sparse_gradients(network: nn.Module, what: str) -> None:
    """Check that a network has no sparse gradients.

    Args:
        network: The network.
        what: What cannot process them, as the subject of a sentence.

    Raises:
        TrainyardError: It has some.
    """
    for name, module in network.named_modules():
        if getattr(module, "sparse", False) is True and any(p.requires_grad for p in module.parameters(recurse=False)):
            raise TrainyardError(
                f"{what} cannot process the sparse gradients of {name!r} ({type(module).__name__}). Write sparse=False "
                "there."
            )
