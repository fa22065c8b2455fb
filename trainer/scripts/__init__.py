"""What a script exchanges with its worker: the metrics that it reports, and the files that are stored for it."""
