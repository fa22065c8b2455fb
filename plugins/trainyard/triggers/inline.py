"""Run a trigger in the worker, for tasks that keep their worker slot while they wait."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from airflow.triggers.base import BaseTrigger


def run_inline(trigger: BaseTrigger) -> dict[str, Any]:
    """Return the payload of a trigger's event, once it fires."""

    async def first() -> dict[str, Any]:
        async with aclosing(trigger.run()) as events:
            return dict((await anext(events)).payload)

    return asyncio.run(first())
