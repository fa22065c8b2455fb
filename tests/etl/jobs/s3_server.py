"""A server of S3's protocol that makes one change at a time, as S3 does: `python -m tests.etl.jobs.s3_server`.

moto looks whether a conditional write may happen, and writes later. Of several threads, all may have looked before the
first one writes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple


def main() -> None:
    """Serve on a port of the loopback interface, which is printed."""
    moto, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def serve(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return moto(environ, start_response)  # type: ignore[no-any-return]
        with lock:
            return moto(environ, start_response)  # type: ignore[no-any-return]

    run_simple("127.0.0.1", 0, serve, threaded=True)


if __name__ == "__main__":
    main()
