"""What several operators are: tasks that write datasets, Spark stages, worker groups."""
