"""The Spark data source `trainyard`: write and read datasets."""
