"""Measure utilization and memory of a worker's GPU, with NVML through torch."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from statistics import mean

import torch

from trainyard.trainer.measuring.phases import Phases

INTERVAL_SECONDS = 1.0
LOGGED_PART = 600
"""An event has the readings of at least this part of the time so far, so that days have some thousand events."""
GIB = 2**30
Reading = tuple[float, float]
"""Utilization from 0 to 1, and used memory in GiB."""


class GpuMonitor:
    """Read a GPU every second in the body of a `with`."""

    def __init__(self, read: Callable[[], Reading], phases: Phases) -> None:
        self._read, self._phases = read, phases
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu", daemon=True)
        self._count, self._utilization, self._memory = 0, 0.0, 0.0

    def __enter__(self) -> GpuMonitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    @property
    def usage(self) -> dict[str, float]:
        """The mean utilization and the maximum of used memory; empty without a reading."""
        if not self._count:
            return {}
        return {"gpu_utilization": self._utilization / self._count, "gpu_memory_gib": self._memory}

    def _run(self) -> None:
        started, logged, readings = time.monotonic(), -math.inf, list[Reading]()
        while True:
            readings.append(self._read())
            utilization, memory = readings[-1]
            self._count, self._utilization = self._count + 1, self._utilization + utilization
            self._memory = max(self._memory, memory)
            now = time.monotonic() - started
            if is_due(now, logged):
                self._log(readings)
                logged, readings = now, []
            if self._stopped.wait(INTERVAL_SECONDS):
                return

    def _log(self, readings: Sequence[Reading]) -> None:
        utilization, memory = mean(one for one, _ in readings), max(one for _, one in readings)
        self._phases.log_event(lambda log: log.counter("gpu", utilization=utilization, memory_gib=memory))


def is_due(now: float, logged: float) -> bool:
    """Return whether readings are logged `now`, in seconds since the start, if they were last `logged` then."""
    return now - logged >= now / LOGGED_PART


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
