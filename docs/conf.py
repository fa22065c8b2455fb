"""How Sphinx makes pages of docs/: `make docs`."""

import inspect
import os
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
os.environ.setdefault("AIRFLOW_HOME", str(ROOT / "build" / "airflow"))
sys.path[:0] = [str(ROOT), str(ROOT / "plugins")]

from trainyard import __version__  # noqa: E402

REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]

project = "Trainyard"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
html_theme = "furo"
html_title = f"{project} {version}"
html_show_copyright = False
html_theme_options = {
    "source_view_link": f"{REPOSITORY}/blob/main/docs/{{filename}}",
    "source_edit_link": f"{REPOSITORY}/edit/main/docs/{{filename}}",
}
default_role = "code"
# What a reader copies is code: not an output, and not a text of YARN.
copybutton_selector = "div:not(.highlight-output):not(.highlight-text) > div.highlight > pre"
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_class_signature = "mixed"
autodoc_member_order = "bysource"
add_module_names = False


def setup(app):
    """Leave attributes to the section "Attributes" of their class, which has their texts."""
    app.connect("autodoc-skip-member", is_attribute)


def is_attribute(app, what, name, member, skip, options):
    return True if what == "class" and not (inspect.isroutine(member) or isinstance(member, property)) else None
