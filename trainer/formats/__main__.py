"""Write a trained bundle in another format: `python -m trainer.formats --help`."""

from __future__ import annotations

import argparse
import sys

from trainer.formats import FORMATS, export
from trainyard.contract.errors import TrainyardError


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0, or 1 when the bundle cannot be written so."""
    parser = argparse.ArgumentParser(prog="python -m trainer.formats", description="Write a bundle in another format.")
    parser.add_argument("format", choices=FORMATS)
    parser.add_argument("bundle", help="URI or path of the model bundle")
    parser.add_argument("output", help="URI or path to write to: a file, or for mlflow a directory")
    given = parser.parse_args(arguments)
    try:
        export(given.bundle, given.format, given.output)
    except TrainyardError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
