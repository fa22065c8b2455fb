"""Sum the time of tests by what they start and by file, from the XML files of `make test` and `make test-all`.

python bench/tests.py [FILE ...]
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

RESULTS = Path(__file__).parent.parent / ".run" / "tests"
LINES = 25


@dataclass(frozen=True)
class Test:
    """A test that has run.

    Attributes:
        file: Its module.
        name: Its name.
        systems: The markers of what it starts, "none" for a unit test.
        seconds: How long it took, with the fixtures that it was the first to use.
        processor_seconds: The processor time of its process and of what it started, where that still ran at its end or
            was waited for.
    """

    file: str
    name: str
    systems: str
    seconds: float
    processor_seconds: float


def read(results: Path) -> Iterator[Test]:
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        properties = {each.get("name"): each.get("value") or "" for each in case.iter("property")}
        processor = float(properties.get("processor_seconds") or 0)
        systems = properties.get("systems") or "none"
        yield Test(
            case.get("classname") or "", case.get("name") or "", systems, float(case.get("time") or 0), processor
        )


def show(title: str, groups: dict[str, list[Test]]) -> None:
    print(f"\n| {title} | tests | seconds | processor |\n| --- | --- | --- | --- |")
    rows = [
        (sum(t.seconds for t in tests), sum(t.processor_seconds for t in tests), len(tests), name)
        for name, tests in groups.items()
    ]
    for seconds, processor, count, name in sorted(rows, reverse=True)[:LINES]:
        print(f"| {name} | {count} | {seconds:.0f} | {processor:.0f} |")


def main(names: Sequence[str]) -> None:
    files = [Path(name) for name in names] or sorted(RESULTS.glob("*.xml"))
    suites = {file.stem: list(read(file)) for file in files}
    show("suite", suites)
    for title, key in (("started", "systems"), ("file", "file"), ("test", "name")):
        groups = defaultdict(list)
        for test in (test for tests in suites.values() for test in tests):
            groups[getattr(test, key)].append(test)
        show(title, groups)


if __name__ == "__main__":
    main(sys.argv[1:])
