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
        host: The host of the driver, where workers connect.
        bind_host: The host or address that it listens on, if that is another one.

    Attributes:
        monitor: The heartbeats of the workers.
    """

    def __init__(self, host: str, bind_host: str | None = None) -> None:
        self.monitor = HeartbeatMonitor()
        services = {heartbeats.SERVICE: self.monitor.serve, store.SERVICE: StoreServer().serve}
        super().__init__(host, services, bind_host)
