"""Pages in Airflow: pipelines, runs, resource usage."""
