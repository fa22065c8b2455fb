"""What the driver serves to the workers of a group: their store, and the receipt of their heartbeats."""

from __future__ import annotations

from trainyard.trainer.connections import store
from trainyard.trainer.connections.channel import Server
from trainyard.trainer.connections.store import StoreServer
from trainyard.trainer.group import heartbeats
from trainyard.trainer.group.heartbeats import HeartbeatMonitor


class GroupServer(Server):
    """Serve one worker group; a context manager.

    Args:
        host: The host of the driver.

    Attributes:
        monitor: The heartbeats of the workers.
    """

    def __init__(self, host: str) -> None:
        self.monitor = HeartbeatMonitor()
        super().__init__(host, {heartbeats.SERVICE: self.monitor.serve, store.SERVICE: StoreServer().serve})
