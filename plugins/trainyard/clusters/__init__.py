"""One interface of the clusters that applications run on, and its implementations."""
