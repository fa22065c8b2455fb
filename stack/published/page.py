"""The page of the results, docs/how-to/training/published-scripts.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stack.published.results import Result
from stack.published.scripts import DATA, Script

HEAD = """# Published scripts that run unchanged

These scripts of other projects were run by [ScriptOperator](scripts.md), without a change, on two workers without GPUs.
`make scripts` runs them, checks the output of each, and writes this page:

```sh
make scripts                              # every script, half an hour on two cores
make scripts NAMES="imagenet accelerate"  # these scripts; the results of the others are kept
```

Each is fetched from GitHub at the commit that its link names. On a machine without a network, the variable
`TRAINYARD_MIRROR` names a folder with git directories `OWNER/NAME`. Data are small and written on the spot: digits of
scikit-learn in the formats of MNIST and of images in folders, and text of a few words. What the examples of Accelerate
download, GLUE with its metric and BERT, are small local ones in folders of these names, which both libraries prefer.

In a DAG, put the clone below the DAG's folder, and name the script by its path, as in `build/published/NAME/dags`:

```text
git clone https://github.com/pytorch/examples dags/pytorch-examples
ScriptOperator(task_id="train", script="pytorch-examples.imagenet.main", arguments=[...], workers=2)
```

A folder is shipped whole, so that the script finds the modules and files beside it. What a script imports has to be
[installed on the nodes](../cluster/environments.md); here these were, beside Trainyard's own packages:
"""

TRAINS = """## Scripts that train

`DATA` is the folder with the data. *Also needed* is what is needed beside the arguments, and what to know. The output
is the last line that was checked: it shows that the script trained, not how well it can. How many lines there are is
checked too, as it shows that workers share their rows, or that one of them reports.
"""

STOPS = """## Scripts that do not train here

They end with a message of their own: they need GPUs, a network, or another version of a package. The messages are
checked; with what the scripts need they were not tried.
"""


def render(scripts: Sequence[Script], results: Mapping[str, Result]) -> str:
    """Return the text of the page, with the scripts that train in the first table.

    The result of a script that would be run otherwise now, such as at another commit, is left out.
    """
    valid = {script.name: found for script in scripts if (found := results.get(script.name)) and found.is_of(script)}
    trains = [_render_training(script, valid.get(script.name)) for script in scripts if script.trains]
    stops = [_render_stop(script, valid.get(script.name)) for script in scripts if not script.trains]
    lines = [
        HEAD, _render_versions(valid), TRAINS,
        "| script | arguments | also needed | its output | s | date |", f"|{' --- |' * 6}", *trains, "",
        STOPS, "| script | why | its message | date |", f"|{' --- |' * 4}", *stops,
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _render_versions(results: Mapping[str, Result]) -> str:
    """Return the versions of the packages; where they differ, a line for those of some scripts, which it names."""
    names: dict[str, list[str]] = {}
    for name, result in results.items():
        if result.versions:
            versions = ", ".join(f"{package} {version}" for package, version in result.versions.items())
            names.setdefault(versions, []).append(name)
    if len(names) == 1:
        return f"{next(iter(names))}.\n"
    return "".join(f"- {', '.join(scripts)}: {versions}\n" for versions, scripts in names.items())


def _render_training(script: Script, result: Result | None) -> str:
    status, seconds, date = _render_result(result)
    output = f"`{_escape(result.evidence)}`" if result and result.status == "trains" else status
    arguments = f"`{' '.join(script.arguments)}`".replace(DATA, "DATA") if script.arguments else "none"
    return f"| {_render_link(script)} | {arguments} | {_render_needed(script)} | {output} | {seconds} | {date} |"


def _render_stop(script: Script, result: Result | None) -> str:
    status, _, date = _render_result(result)
    message = f"`{_escape(result.evidence)}`" if result and result.status == "stops" else status
    return f"| {_render_link(script)} | {script.note} | {message} | {date} |"


def _render_result(result: Result | None) -> tuple[str, str, str]:
    """Return status, seconds and date."""
    if result is None:
        return "not run yet", "-", "-"
    reason = f": `{_escape(result.reason)}`" if result.reason else ""
    status = f"**{result.status}**" if result.status == "failed" else result.status
    return f"{status}{reason}", str(result.seconds or "-"), result.date


def _render_link(script: Script) -> str:
    repository = script.repository
    return (
        f"{script.name}: [{script.path}](https://github.com/{repository.name}/blob/{repository.commit}/{script.path})"
    )


def _render_needed(script: Script) -> str:
    """Return the variables and the working directory of a script, and what to know."""
    variables = " ".join(f"{name}={value}" for name, value in script.variables.items())
    parts = [
        f"`env_vars`: `{variables}`" if variables else "",
        f"`cwd={script.cwd}`" if script.cwd else "",
        f"data in `{script.data_folder}` of the clone" if script.data_folder else "",
        script.note,
    ]
    return ("; ".join(part for part in parts if part) or "nothing").replace(DATA, "DATA")


def _escape(text: str) -> str:
    """Return text that can be in a span of code in a table."""
    return text.replace("`", "'").replace("|", "\\|")
