"""What a pipeline waits for: room on the cluster."""

from trainyard.sensors.capacity import CapacitySensor

__all__ = ["CapacitySensor"]
