"""A process that workers are forked from, which imports torch once for all of them."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from unittest.mock import patch

MODULES = (
    "pytest",  # each child imports the main program of its parent
    "torch._dynamo",  # torch imports it with the first optimizer
    "trainyard.trainer.loop.fit",
)


def get_context(*modules: str) -> ForkServerContext:
    """Start the process if it does not run, and return what creates its children.

    Before Python 3.13 it is not given `sys.path`, and ignores modules that it does not find (gh-117378).

    Args:
        modules: What it imports first.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*modules, *MODULES])
    with patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)):
        forkserver.ensure_running()
    return context
