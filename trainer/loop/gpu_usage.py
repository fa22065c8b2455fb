"""How busy a rank's GPU is, and how full, by NVML through torch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from statistics import mean

import torch

from trainyard.trainer.loop.phases import Phases

SECONDS = 1.0
GIB = 2**30
Reading = tuple[float, float]
"""Utilisation from 0 to 1, and memory in use in GiB."""


class GpuMonitor:
    """A context that reads every second; `figures` are the mean utilization and the most memory in use."""

    def __init__(self, read: Callable[[], Reading], phases: Phases) -> None:
        self._read, self._phases = read, phases
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="gpu", daemon=True)
        self._readings: list[Reading] = []

    def __enter__(self) -> GpuMonitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def figures(self) -> dict[str, float]:
        used = [utilization for utilization, _ in self._readings]
        held = [memory for _, memory in self._readings]
        return {"gpu_utilization": mean(used), "gpu_memory_gib": max(held)} if used else {}

    def _watch(self) -> None:
        while True:
            utilization, memory = self._read()
            self._readings.append((utilization, memory))
            self._phases.note(lambda log, u=utilization, m=memory: log.counter("gpu", utilization=u, memory_gib=m))  # type: ignore[misc]
            if self._over.wait(SECONDS):
                return


def reader(device: torch.device) -> Callable[[], Reading] | None:
    """What reads `device`; None where there is no GPU, or its figures cannot be had, which is said."""
    if device.type != "cuda":
        return None

    def read() -> Reading:
        return torch.cuda.utilization(device) / 100, torch.cuda.device_memory_used(device) / GIB

    try:
        read()
    except Exception as error:  # NVML's errors derive from nothing narrower
        print(f"no figures of the GPU: {error}. They need nvidia-ml-py, and a driver that answers.", flush=True)
        return None
    return read
