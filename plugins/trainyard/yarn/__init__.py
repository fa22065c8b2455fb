"""YARN: what does the cluster have, what runs there, and does an application fit? Asked by REST."""
