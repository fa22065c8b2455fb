"""Which code travels to the cluster, and in which archive and environment?"""
