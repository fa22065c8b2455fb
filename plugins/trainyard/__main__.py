"""Run the command line as `python -m trainyard`."""

from __future__ import annotations

from trainyard.cli.main import run

if __name__ == "__main__":
    run()
