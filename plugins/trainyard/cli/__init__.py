"""The command line `trainyard`."""
