"""Run the command line as `python -m trainyard`."""

from __future__ import annotations

import sys

from trainyard.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
