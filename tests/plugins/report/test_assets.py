"""The style, the scripts and the colors that the report and the pages share."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import get_args

from trainyard import report
from trainyard.report import assets, palette
from trainyard.schemas.runs import phases

VENDOR = Path(str(report.__file__)).parent / "vendor"


def test_the_vendored_library_has_the_hash_and_the_licenses_of_its_readme() -> None:
    readme = (VENDOR / "README.txt").read_text()
    [(expected, name)] = re.findall(r"sha256 ([0-9a-f]{64})  (\S+)", readme)
    assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == expected
    assert {path.name for path in VENDOR.glob("LICENSE.*")} == {
        f"LICENSE.{n}" for n in ("d3", "echarts", "tslib", "zrender")
    }
    assert "Apache" in (VENDOR / "NOTICE.echarts").read_text()


def test_the_scripts_can_be_written_into_a_page_and_name_no_address() -> None:
    for text in (assets.read_charts(), assets.read_text(assets.THEME), assets.read_style()):
        assert "</script" not in text and "</style" not in text and "<!--" not in text
        assert not re.search(r"https?://", text)


def test_a_color_has_one_meaning() -> None:
    for scheme in ("light", "dark"):
        colors = [getattr(activity, scheme) for activity in palette.ACTIVITIES]
        assert len(set(colors)) == len(colors)
    assert [activity.key for activity in palette.ACTIVITIES] == list(get_args(phases.Activity))


def test_every_color_that_the_scripts_name_is_defined() -> None:
    defined = set(re.findall(r"--([a-z0-9-]+):", assets.read_style()))
    named = set(re.findall(r'color\("([a-z-]+)"\)', assets.read_charts()))
    assert named and named <= defined
    assert {palette.line_style(number)["color"] for number in range(20)} <= {c.removeprefix("series-") for c in defined}


def test_lines_after_the_last_color_are_dashed() -> None:
    assert palette.line_style(0) == {"color": "run-0", "dash": "solid"}
    assert palette.line_style(palette.RUN_COLORS) == {"color": "run-0", "dash": "dashed"}
    assert palette.line_style(99)["dash"] == "dotted"
