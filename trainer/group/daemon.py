"""The process that Spark forks a group's Python workers from (`spark.python.daemon.module`).

It imports what every worker needs: once a container instead of once a worker, and before a worker is replaced after a
failure. The threads that these imports start (OpenBLAS, Arrow's jemalloc) support forks. CUDA does not, so none of the
imports may initialize it. `gc.freeze` makes the garbage collector of a worker skip the imported objects, whose pages it
would copy otherwise (0.3 s a start).
"""

import gc
from contextlib import suppress
from importlib import import_module

from pyspark.daemon import manager

MODULES = (
    "pyspark.worker",
    "pandas",  # pyarrow imports it with the first array
    "torch._dynamo",  # torch imports it with the first optimizer
    "trainyard.trainer.loop.fit",
)

for module in MODULES:
    with suppress(ImportError):  # a script does not need all of them; a worker names what it misses
        import_module(module)

if __name__ == "__main__":
    gc.freeze()
    manager()
