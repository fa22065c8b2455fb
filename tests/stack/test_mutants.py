"""The table of modules that are mutated, and the mutants that change nothing."""

from __future__ import annotations

import pytest

from stack.local.mutants import EQUIVALENTS, ROOT, TESTS, read_equivalents


@pytest.mark.parametrize("module", TESTS)
def test_a_module_and_its_tests_exist(module: str) -> None:
    assert (ROOT / "plugins" / "trainyard" / f"{module}.py").is_file()
    assert all((ROOT / "tests" / test).is_file() for test in TESTS[module])


def test_an_equivalent_mutant_has_its_module_and_the_line_before_and_after() -> None:
    text = "planning/sizing: it is computed later\n    - size = 0\n    + size = 1\n"
    assert read_equivalents(text) == {("planning/sizing", "size = 0", "size = 1")}


def test_the_lines_of_equivalent_mutants_are_in_their_modules() -> None:
    text = EQUIVALENTS.read_text()
    equivalents = read_equivalents(text)
    assert len(equivalents) == text.count("\n    - ")
    for module, before, _ in equivalents:
        assert before in (ROOT / "plugins" / "trainyard" / f"{module}.py").read_text(), before
