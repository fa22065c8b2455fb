"""Training loops for the tests of `Run`."""

from __future__ import annotations

import os
import signal
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.nn import functional

from tests.trainer import recipes
from trainyard.trainer import Recipe, Run


def validate(run: Run, net: nn.Module) -> None:
    """Report the loss of the validation split."""
    net.eval()
    with torch.no_grad():
        for batch in run.batches():
            batch.report(validation_loss=functional.cross_entropy(net(batch), batch["label"]))
    net.train()


def plain(run: Run, learning_rate: float = 0.1, fault: str = "", losses: str = "") -> None:
    """Train as the recipe does; kill or terminate a worker where the file `fault` says so, and log the losses."""
    net = run.model(recipes.linear)
    optimizer = optim.SGD(net.parameters(), learning_rate, momentum=0.9)
    run.track(net=net, optimizer=optimizer)
    for batch in run.steps():
        loss = functional.cross_entropy(net(batch), batch["label"])
        value = batch.backward(loss)
        cause_fault(fault, batch.epoch, batch.step)
        optimizer.step()
        optimizer.zero_grad()
        batch.report(loss=loss)
        if losses and run.is_main:
            with Path(losses).open("a") as file:
                file.write(f"{batch.epoch} {batch.step} {value.item()!r}\n")
        if batch.ends_epoch:
            validate(run, net)
    run.publish(net)


def cause_fault(fault: str, epoch: int, step: int) -> None:
    """Send the signal that a file names ("epoch step rank signal") to this process, once."""
    if not fault or not Path(fault).exists():
        return
    at_epoch, at_step, at_rank, number = map(int, Path(fault).read_text().split())
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    if (at_epoch, at_step, at_rank) == (epoch, step, rank):
        Path(fault).unlink()
        os.kill(os.getpid(), signal.Signals(number))


def clipped(run: Run, precision: str = "float32") -> None:
    """Clip the norm of the gradients of a scaled loss, as a recipe does."""
    net = run.model(recipes.linear)
    optimizer = optim.SGD(net.parameters(), 0.1, momentum=0.9)
    scaler = torch.amp.GradScaler(run.device.type, enabled=precision == "float16")
    run.track(net=net, optimizer=optimizer, scaler=scaler)
    for batch in run.steps():
        optimizer.zero_grad()
        with run.autocast():
            loss = functional.cross_entropy(net(batch), batch["label"])
        batch.backward(scaler.scale(loss))
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 0.2)
        scaler.step(optimizer)
        scaler.update()
        batch.report(loss=loss)
        if batch.ends_epoch:
            validate(run, net)
    run.publish(net)


def in_parts(run: Run) -> None:
    """Accumulate gradients over three parts of each batch."""
    net = run.model(recipes.linear)
    optimizer = optim.SGD(net.parameters(), 0.1, momentum=0.9)
    run.track(net=net, optimizer=optimizer)
    for batch in run.steps():
        optimizer.zero_grad()
        for part in batch.parts(3):
            loss = functional.cross_entropy(net(part), part["label"])
            part.backward(loss)
            part.report(loss=loss)
        optimizer.step()
    run.publish(net)


def judge() -> Recipe:
    """Return a discriminator of rows."""
    return Recipe(model=nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)), features="x")


def gan(run: Run) -> None:
    """Train two networks with an optimizer each, the generator by gradients through the discriminator."""
    judges, draws = run.model(judge), run.prepare(nn.Linear(4, 8))
    optimizers = [optim.Adam(network.parameters(), 1e-2) for network in (judges, draws)]
    run.track(judges=judges, draws=draws, of_judges=optimizers[0], of_draws=optimizers[1])
    for batch in run.steps():
        drawn = draws(batch.randn(4))
        for optimizer in optimizers:
            optimizer.zero_grad()
        fooled = functional.softplus(-judges({"x": drawn})).mean()
        batch.backward(fooled)
        optimizers[1].step()
        optimizers[0].zero_grad()
        judged = functional.softplus(-judges(batch)) + functional.softplus(judges({"x": drawn.detach()}))
        batch.backward(judged.mean())
        optimizers[0].step()
        batch.report(fooled=fooled, loss=judged.mean())
    run.publish(judges)


def lbfgs(run: Run) -> None:
    """Take steps that compute the loss several times, with a line search by the loss of all workers."""
    net = run.model(recipes.linear)
    optimizer = optim.LBFGS(net.parameters(), max_iter=5, line_search_fn="strong_wolfe")
    run.track(net=net, optimizer=optimizer)
    for batch in run.steps():

        def closure(batch: Any = batch) -> Tensor:
            optimizer.zero_grad()
            return batch.backward(functional.cross_entropy(net(batch), batch["label"]))

        batch.report(loss=optimizer.step(closure))
    run.publish(net)


def distillation(run: Run) -> None:
    """Train a network on the outputs of a frozen one."""
    torch.manual_seed(1)
    teacher = run.prepare(nn.Linear(8, 3)).requires_grad_(False)
    net = run.model(recipes.linear)
    optimizer = optim.AdamW(net.parameters(), 0.1)
    schedule = optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    run.track(net=net, optimizer=optimizer, schedule=schedule)
    for batch in run.steps():
        optimizer.zero_grad()
        loss = functional.mse_loss(net(batch), teacher(batch["x"]))
        value = batch.backward(loss)
        optimizer.step()
        batch.report(loss=loss)
        if batch.ends_epoch:
            schedule.step(value.item())
            run.report(rate=optimizer.param_groups[0]["lr"])
    run.publish(net)


def averaged(run: Run, validates: bool = False) -> None:
    """Publish an exponential moving average of the weights, which may be validated after each epoch."""
    net, ema = run.model(recipes.linear), run.model(recipes.linear)
    ema.load_state_dict(deepcopy(net.state_dict()))
    ema.requires_grad_(False)
    if validates:
        validate(run, ema)
    optimizer = optim.SGD(net.parameters(), 0.1)
    run.track(net=net, ema=ema, optimizer=optimizer)
    for batch in run.steps():
        optimizer.zero_grad()
        with run.autocast():
            loss = functional.cross_entropy(net(batch), batch["label"])
        batch.backward(loss)
        optimizer.step()
        for mean, parameter in zip(ema.parameters(), net.parameters(), strict=True):
            mean.lerp_(parameter.detach(), 0.1)
        batch.report(loss=loss)
        if validates and batch.ends_epoch:
            validate(run, ema)
    run.publish(ema)


def counted(run: Run, file: str) -> None:
    """Write the elements of each parameter and of its momentum that this worker has."""
    net = run.model(recipes.linear)
    optimizer = optim.SGD(net.parameters(), 0.1, momentum=0.9)
    run.track(net=net, optimizer=optimizer)
    for batch in run.steps():
        optimizer.zero_grad()
        batch.backward(functional.cross_entropy(net(batch), batch["label"]))
        optimizer.step()
    momenta = [optimizer.state[parameter]["momentum_buffer"] for parameter in net.parameters()]
    tensors: list[Any] = [*net.parameters(), *momenta]
    Path(file).write_text("\n".join(str(tensor.to_local().numel()) for tensor in tensors))
    run.publish(net)


def validated_average(run: Run) -> None:
    """Validate the average: a forward pass without gradients comes before the optimizer, and after each epoch."""
    averaged(run, validates=True)


def sharing(run: Run, how: str) -> None:
    """Give networks to the run that have parameters in common; or shards to an object that is no network."""
    net, head = run.model(recipes.linear), nn.Linear(3, 3)
    if how == "outer":
        run.prepare(nn.Sequential(net, head))
    if how == "tied":
        other = nn.Linear(3, 3)
        other.weight = head.weight
        run.prepare(head, other)
    optimizer = optim.SGD(run.prepare(net).parameters(), 0.1)
    own = {"copies": Copies(net)} if how == "copies" else {}
    run.track(net=net, optimizer=optimizer, **own)
    for batch in run.steps():
        batch.backward(functional.cross_entropy(net(batch), batch["label"]))
        optimizer.step()
        optimizer.zero_grad()
    run.publish(net)


class Copies:
    """Copies of the parameters of a network, as libraries of averages keep them."""

    def __init__(self, network: nn.Module) -> None:
        self.tensors = [parameter.detach().clone() for parameter in network.parameters()]

    def state_dict(self) -> dict[str, Any]:
        return {"tensors": self.tensors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.tensors = state["tensors"]


def mistaken(run: Run, mistake: str) -> None:
    """Make a mistake that is refused."""
    net, other = run.model(recipes.linear), run.prepare(nn.Linear(8, 3))
    optimizer = optim.SGD([*net.parameters(), *other.parameters()], 0.1)
    objects: dict[str, Any] = {"net": net, "other": other, "optimizer": optimizer}
    if mistake == "untracked":
        del objects["other"]
    if mistake == "not stateful":
        objects["count"] = 3
    if mistake == "noise":
        run.model(noise)
    run.track(**objects)
    if mistake == "tracked twice":
        run.track(net=net)
    if mistake == "published early":
        run.publish(net)
    for batch in run.steps(columns=["x"]):
        optimizer.zero_grad()
        if mistake == "reserved":
            batch.report(epoch=1.0)
        if mistake == "no part":
            next(batch.parts(3)).backward(net(batch).mean())
        elif mistake == "no mean":
            batch.backward(net(batch))
        elif mistake == "own backward":
            functional.cross_entropy(net(batch), batch["label"]).backward()
        else:
            batch.backward(functional.cross_entropy(net(batch), batch["label"]))
        optimizer.step()
        if mistake == "vector":
            batch.report(loss=net(batch)[:, 0])
    if mistake == "steps twice":
        run.steps()
    if mistake == "trained on validation":
        next(run.batches()).backward(net(batch).mean())
    if mistake == "no split":
        list(run.batches("test"))
    if mistake == "published other":
        run.publish(other)
    if mistake != "nothing published":
        run.publish(net)


def noise() -> Recipe:
    return Recipe(model=nn.Linear(4, 8), features="noise")


def left(run: Run) -> None:
    """Leave the loop in the second epoch."""
    net = run.model(recipes.linear)
    optimizer = optim.SGD(net.parameters(), 0.1)
    run.track(net=net, optimizer=optimizer)
    for batch in run.steps():
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(batch), batch["label"])
        batch.backward(loss)
        optimizer.step()
        batch.report(loss=loss)
        if (batch.epoch, batch.step) == (1, 4):
            break
    run.publish(net)


def renamed(run: Run, name: str) -> None:
    """Track a network by the name that a file has."""
    net = run.model(recipes.linear)
    run.track(**{Path(name).read_text(): net})
    for batch in run.steps():
        batch.backward(net(batch).mean())
    run.publish(net)


def drawing(run: Run, file: str) -> None:
    """Write the random numbers of each row."""
    net = run.model(recipes.linear)
    optimizer = optim.SGD(net.parameters(), 0.1)
    run.track(net=net, optimizer=optimizer)
    for batch in run.steps():
        batch.rand(1)
        numbers = [part.randn(2) for part in batch.parts(2)]
        if batch.rows:
            torch.save(torch.cat(numbers), f"{file}-{batch.epoch}-{batch.step}-{batch.first_row}")
        batch.backward(net(batch).mean())
    run.publish(net)
