"""Data loading: the order of rows, and how they become tensors."""
