"""What is stored of a dataset: its manifest and versions, and what was fitted to it."""
