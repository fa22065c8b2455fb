"""Measure utilization and memory of a worker's GPU, with NVML through torch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from statistics import mean

import torch

from trainyard.trainer.loop.phases import Phases

INTERVAL_SECONDS = 1.0
GIB = 2**30
Reading = tuple[float, float]
"""Utilization from 0 to 1, and used memory in GiB."""


class GpuMonitor:
    """Read a GPU every second in the body of a `with`."""

    def __init__(self, read: Callable[[], Reading], phases: Phases) -> None:
        self._read, self._phases = read, phases
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu", daemon=True)
        self._readings: list[Reading] = []

    def __enter__(self) -> GpuMonitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    @property
    def usage(self) -> dict[str, float]:
        """The mean utilization and the maximum of used memory; empty without a reading."""
        utilizations = [utilization for utilization, _ in self._readings]
        memories = [memory for _, memory in self._readings]
        return {"gpu_utilization": mean(utilizations), "gpu_memory_gib": max(memories)} if self._readings else {}

    def _run(self) -> None:
        while True:
            utilization, memory = self._read()
            self._readings.append((utilization, memory))
            self._phases.log_event(lambda log, u=utilization, m=memory: log.counter("gpu", utilization=u, memory_gib=m))  # type: ignore[misc]
            if self._stopped.wait(INTERVAL_SECONDS):
                return


def build_reader(device: torch.device) -> Callable[[], Reading] | None:
    """Return a function that reads `device`, or None for a CPU or a GPU that cannot be read (which is logged)."""
    if device.type != "cuda":
        return None

    def read() -> Reading:
        return torch.cuda.utilization(device) / 100, torch.cuda.device_memory_used(device) / GIB

    try:
        read()
    except Exception as error:  # NVML has no narrower base class
        print(f"GPU usage is not measured: {error}. Install nvidia-ml-py, and check that nvidia-smi works.", flush=True)
        return None
    return read
