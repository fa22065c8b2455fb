"""The copy of the code that an MLflow model includes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.trainer.formats import code


@pytest.mark.parametrize("is_archive", [False, True])
def test_packages_and_modules_beside_the_recipes_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_archive: bool
) -> None:
    files = {
        "dags/shapes_recipe/net.py": "import json\nfrom shapes_common.layers import WIDTH\n",
        "dags/shapes_recipe/template.py": "{{ no Python }}",
        "dags/shapes_common/__init__.py": "",
        "dags/shapes_common/layers.py": "from shapes_sizes import WIDTH\n",
        "dags/shapes_sizes.py": "import shapes_elsewhere\nWIDTH = 3\n",
        "dags/shapes_recipe/optional.py": "import shapes_missing\nimport shapes_broken\n",
        "dags/shapes_broken/__init__.py": "raise ImportError('not for this environment')\n",
        "dags/shapes_unused.py": "",
        "elsewhere/shapes_elsewhere.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path / "elsewhere"))
    dags = shutil.make_archive(str(tmp_path / "job"), "zip", tmp_path / "dags") if is_archive else tmp_path / "dags"
    monkeypatch.syspath_prepend(str(dags))
    copies = code.copy(["shapes_recipe.net:build"], tmp_path / "code")
    names = ["shapes_broken", "shapes_common", "shapes_recipe", "shapes_sizes.py", "trainyard"]
    assert [Path(copy).name for copy in copies] == names
    program = (
        f"import sys; sys.path[:0] = [{str(tmp_path / 'code')!r}, {str(tmp_path / 'elsewhere')!r}]\n"
        "from shapes_recipe.net import WIDTH; print(WIDTH)"
    )
    ran = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "3\n"


def test_the_copied_modules_import_nothing_of_the_package_that_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside" / "shapes_alone.py").parent.mkdir()
    (tmp_path / "beside" / "shapes_alone.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path / "beside")
    code.copy(["shapes_alone"], tmp_path)
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import trainyard.files.storage, trainyard.schemas.model_artifact\n"
        "from trainyard.files.filesystems import locate\n"
        "locate('memory://x')"
    )
    subprocess.run([sys.executable, "-I", "-c", program], check=True)
