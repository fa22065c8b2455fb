"""Leave what this release stores for the tests of later ones: `python -m tests.stored.record`, with each release.

The pipeline `stored` runs on this machine in a home of its own. Its storage becomes `tests/stored/RELEASE`, without
what is only shown: reports, traces and logs.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import trainyard

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
DAGS = FOLDER / "dags"
COMMAND = ". stack/local/env.sh && exec airflow dags test stored 2026-11-01"
SHOWN = ("*.html", "trace.json", "logs", "environments", "*.crc")


def write_flowers(file: Path) -> None:
    """Write the rows that the pipeline reads: three kinds in two fields, some without a field."""
    draw = random.Random(0)
    kinds = {"iris": (5, 2), "rose": (2, 4), "tulip": (3, 6)}
    lines = ["id,length,width,field,kind"]
    for number in range(240):
        kind = ("iris", "rose", "tulip")[number % 3]
        length, width = (round(draw.gauss(mean, 0.4), 2) for mean in kinds[kind])
        lines.append(f"{number},{length},{width},{('north', 'south', '')[number % 7 % 3]},{kind}")
    file.parent.mkdir(parents=True)
    file.write_text("\n".join(lines) + "\n")


def main() -> None:
    """Run the pipeline, and copy its storage."""
    target = FOLDER / trainyard.__version__
    if target.exists():
        sys.exit(f"{target} exists: what a release has stored does not change. Remove it if it was never released.")
    with tempfile.TemporaryDirectory() as home:
        write_flowers(Path(home, "storage", "stored", "source", "flowers.csv"))
        environment = {"TRAINYARD_HOME": home, "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS), "HOME": str(Path.home())}
        subprocess.run(["bash", "-c", COMMAND], cwd=ROOT, env=environment | {"PATH": "/usr/bin:/bin"}, check=True)
        shutil.copytree(Path(home, "storage"), target, ignore=shutil.ignore_patterns(*SHOWN))
    print(json.dumps(sorted(str(file.relative_to(target)) for file in target.rglob("*") if file.is_file()), indent=1))


if __name__ == "__main__":
    main()
