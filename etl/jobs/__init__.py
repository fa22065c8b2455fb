"""Jobs: what the Spark application of each operator runs."""
