"""Show what Lightning and Accelerate say when replicas or a saved model are no longer the trained model.

    python -m torch.distributed.run --nproc-per-node 2 -m bench.peers.replicas lightning
    python -m torch.distributed.run --nproc-per-node 2 -m bench.peers.replicas accelerate

Two processes on CPUs train a small network in each situation of `docs/explanation/guarantees.md`. Each line has how far
the weights of the processes are apart, and the outputs of the trained model from those of one that is built anew and
loaded; an error ends the program.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

SITUATIONS = ("an optimizer that adds noise", "a layer that is unfrozen", "a projection in an attribute")
ROWS = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """A network with a random projection that `state_dict` does not have, if the situation is about that."""

    def __init__(self, situation: str) -> None:
        super().__init__()
        self.projection = torch.randn(8, 8) if situation == SITUATIONS[2] else torch.eye(8)
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 1)
        self.first.requires_grad_(situation != SITUATIONS[1])

    def forward(self, rows: Tensor) -> Tensor:
        return self.last(self.first(rows @ self.projection).relu())  # type: ignore[no-any-return]


class Noisy(torch.optim.SGD):
    """Langevin dynamics."""

    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data += 0.01 * torch.randn_like(parameter)
        return loss


def build(situation: str, net: Net) -> torch.optim.Optimizer:
    return (Noisy if situation == SITUATIONS[0] else torch.optim.SGD)(net.parameters(), 0.05)


def train_lightning(situation: str, folder: Path) -> tuple[Net, Net]:
    """Return the trained network, and one that is built anew and loaded from the checkpoint."""
    from lightning import LightningModule, Trainer

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net(situation)

        def on_train_epoch_start(self) -> None:
            self.net.first.requires_grad_(situation != SITUATIONS[1] or self.current_epoch > 0)

        def training_step(self, batch: list[Tensor]) -> Tensor:
            return (self.net(batch[0]) - batch[0].sum(1, keepdim=True)).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return build(situation, self.net)

    trainer = Trainer(
        max_epochs=3, accelerator="cpu", devices=2, strategy="ddp", logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, default_root_dir=folder,
    )  # fmt: skip
    module = Module()
    trainer.fit(module, DataLoader(TensorDataset(ROWS), 4))
    trainer.save_checkpoint(folder / "model.ckpt")
    return module.net, Module.load_from_checkpoint(folder / "model.ckpt", weights_only=True).net


def train_accelerate(situation: str, folder: Path) -> tuple[Net, Net]:
    """Return the trained network, and one that is built anew and loaded from what was saved."""
    from accelerate import Accelerator
    from safetensors.torch import load_file

    accelerator = Accelerator(cpu=True)
    net = Net(situation)
    model, optimizer, loader = accelerator.prepare(net, build(situation, net), DataLoader(TensorDataset(ROWS), 4))
    for epoch in range(3):
        net.first.requires_grad_(situation != SITUATIONS[1] or epoch > 0)
        for (rows,) in loader:
            accelerator.backward((model(rows) - rows.sum(1, keepdim=True)).square().mean())
            optimizer.step()
            optimizer.zero_grad()
    accelerator.wait_for_everyone()
    accelerator.save_model(model, folder)
    accelerator.wait_for_everyone()
    loaded = Net(situation)
    loaded.load_state_dict(load_file(folder / "model.safetensors"))
    return net, loaded


def main() -> None:
    train = {"lightning": train_lightning, "accelerate": train_accelerate}[sys.argv[1]]
    for situation in SITUATIONS:
        with torch.random.fork_rng():
            folder = Path(tempfile.gettempdir(), f"replicas-{os.environ['MASTER_PORT']}")  # of both processes
            trained, loaded = train(situation, folder)
        weights = nn.utils.parameters_to_vector(trained.parameters()).detach()
        both = [torch.empty_like(weights) for _ in range(2)]
        torch.distributed.all_gather(both, weights)
        with torch.no_grad():
            output, again = trained.eval()(ROWS), loaded.eval()(ROWS)
        if torch.distributed.get_rank() == 0:
            apart, differs = (both[0] - both[1]).abs().max(), (output - again).norm() / output.norm()
            print(
                f"{situation}: no error; replicas differ by {apart:.3f}, the loaded model by {differs:.2f} of its norm"
            )


if __name__ == "__main__":
    main()
