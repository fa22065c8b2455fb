"""Write the generated pages and drawings of docs/: `python -m stack.docs`."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
os.environ.setdefault("AIRFLOW_HOME", str(ROOT / "build" / "airflow"))


def render_all() -> dict[str, str]:
    """Return the text of each generated file by its path in docs/."""
    from stack.docs import airflow_pages, data_pages, drawings, python_pages, settings_pages, troubleshooting

    return {
        "reference/operators.md": airflow_pages.render_operators(),
        "reference/sensors.md": airflow_pages.render_sensors(),
        "reference/hooks.md": airflow_pages.render_hooks(),
        "reference/connections.md": settings_pages.render_connections(),
        "reference/configuration.md": settings_pages.render_configuration(),
        "reference/cli.md": settings_pages.render_commands(),
        "reference/python.md": python_pages.render_interface(),
        "reference/schema-fields.md": python_pages.render_documents(),
        "reference/data-source.md": data_pages.render_data_source(),
        "reference/strategies.md": data_pages.render_strategies(),
        "reference/metrics.md": data_pages.render_metrics(),
        "troubleshooting.md": troubleshooting.render(),
        **{f"images/{name}.svg": drawing() for name, drawing in drawings.DRAWINGS.items()},
    }


def main() -> None:
    """Write the files that differ, and print their paths."""
    for path, text in render_all().items():
        file = DOCS / path
        if not file.exists() or file.read_text() != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            print(file.relative_to(ROOT))


if __name__ == "__main__":
    main()
