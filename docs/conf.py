"""How Sphinx makes pages of docs/: `make docs`."""

import os
import re
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
extensions = ["myst_parser", "sphinx_copybutton"]
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
CAPTIONS = {"tutorials": "Tutorials", "how-to": "How-to: {}", "explanation": "Explanation"}
CHANGELOG = """# Changes

```{include} ../../CHANGELOG.md
:start-after: "# Changes"
:relative-docs: docs/
```
"""


def setup(app):
    """Add to pages what only Sphinx shows, so that GitHub shows them as they are."""
    app.connect("source-read", change_source)


def change_source(app, name, source):
    if name == "index":
        source[0] += list_contents(source[0])
    elif name == "reference/changelog":
        source[0] = CHANGELOG


def list_contents(text):
    """Return the tables of contents: the pages that the index links, in the order of its last links to them."""
    pages, contents = {}, {}
    for page in re.findall(r"\]\(([^)#:]+)\.md\)", text):
        pages.pop(page, None)
        pages[page] = None
    for page in pages:
        folder, *below = page.split("/")
        caption = CAPTIONS.get(folder, "Reference").format(below[0] if below else "")
        contents.setdefault(caption, []).append(page)
    lists = (
        f'```{{toctree}}\n:caption: "{caption}"\n:hidden:\n' + "\n".join(names) for caption, names in contents.items()
    )
    return "".join(f"\n\n{one}\n```" for one in lists)
