"""The Spark data source `trainyard`: how are datasets written and read?"""
