"""The pages wait for storage in threads of their own."""

from __future__ import annotations

import threading

import anyio
import anyio.to_thread

from trainyard.files import filesystems
from trainyard.pages.pool import in_own_pool


def test_a_storage_that_hangs_leaves_airflows_threads_free() -> None:
    answered = threading.Event()

    @in_own_pool
    def hang() -> str:
        assert answered.wait(30)
        return "read"

    async def main() -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = 1
        pages: list[str] = []

        async def page() -> None:
            pages.append(await hang())

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(page)
            await anyio.sleep(0)
            await anyio.to_thread.run_sync(answered.set)
        assert pages == ["read"] * 3

    anyio.run(main)


def test_a_page_gets_its_arguments_and_a_person_waits_for_it() -> None:
    @in_own_pool
    def add(first: int, second: int = 0) -> int:
        assert filesystems._answers.get() == {}, "a storage that does not answer is refused after seconds"
        return first + second

    assert anyio.run(lambda: add(1, second=2)) == 3
