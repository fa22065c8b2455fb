"""Train a recipe on batches: one process from a shell or notebook, or a gang of ranks on Spark."""
