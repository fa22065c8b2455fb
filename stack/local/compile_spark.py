"""Add compiled modules to the archive of pyspark, from which the Python workers of Spark import.

    python -m stack.local.compile_spark

Python writes no compiled modules into an archive: each of Spark's many daemons would compile what it imports, which
takes a core for a second.
"""

from __future__ import annotations

import compileall
import re
import shutil
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from py_compile import PycInvalidationMode

LEFT_OUT = re.compile("/(pandas|ml|mllib|testing|tests)/")
"""What no worker imports."""


def add_compiled_modules(archive: Path) -> None:
    """Add the compiled modules to an archive that has none; another version of Python compiles the sources."""
    with zipfile.ZipFile(archive) as file:
        if any(name.endswith(".pyc") for name in file.namelist()):
            return
        with tempfile.TemporaryDirectory(dir=archive.parent) as name:
            folder = Path(name)
            sources = folder / "sources"
            file.extractall(sources)
            # An archive has no exact times to compare with those of sources.
            compileall.compile_dir(
                sources, quiet=1, rx=LEFT_OUT, legacy=True, stripdir=sources,
                invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
            )  # fmt: skip
            complete = folder / archive.name
            shutil.copyfile(archive, complete)
            with zipfile.ZipFile(complete, "a", zipfile.ZIP_DEFLATED) as target:
                for module in sources.rglob("*.pyc"):
                    target.write(module, module.relative_to(sources))
            complete.replace(archive)  # the file itself may be a link into the cache of uv


def main() -> None:
    """Add compiled modules to the archive of the installed pyspark."""
    spec = find_spec("pyspark")
    assert spec
    assert spec.origin
    add_compiled_modules(Path(spec.origin).parent / "python" / "lib" / "pyspark.zip")


if __name__ == "__main__":
    main()
