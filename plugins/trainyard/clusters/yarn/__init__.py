"""YARN as a cluster: what callers ask about it, answered by `trainyard.yarn`."""
