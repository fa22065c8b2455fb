"""The worker group: how workers start, report and restart."""
