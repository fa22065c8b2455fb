"""How Sphinx makes pages of docs/: `make docs`."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
os.environ.setdefault("AIRFLOW_HOME", str(ROOT / "build" / "airflow"))
sys.path[:0] = [str(ROOT), str(ROOT / "plugins")]

project = "Trainyard"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = project
default_role = "code"
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_class_signature = "mixed"
autodoc_member_order = "bysource"
add_module_names = False
