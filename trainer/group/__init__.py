"""The worker group: how workers start, connect, report and restart."""
