"""Which code is shipped with a job."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from trainyard.errors import TrainyardError
from trainyard.planning.shipping import packages
from trainyard.planning.shipping.imports import imported_files
from trainyard.planning.shipping.packages import shipped_files, user_package


@pytest.fixture
def zipped_dag(tmp_path: Path) -> Path:
    """The file of a DAG inside an archive that also has the package `zipped`, and beside which `toy` is."""
    with zipfile.ZipFile(tmp_path / "dags.zip", "w") as archive:
        archive.writestr("dag.py", "")
        archive.writestr("zipped/__init__.py", "")
        archive.writestr("zipped/recipe.py", "network = None\n")
        archive.writestr("single.py", "rows = None\n")
    (tmp_path / "toy.py").write_text("rows = None\n")
    return tmp_path / "dags.zip" / "dag.py"


@pytest.mark.parametrize("import_path", ["zipped.recipe:network", "single:rows", "zipped.recipe"])
def test_code_inside_a_zipped_dag_is_refused(zipped_dag: Path, import_path: str) -> None:
    with pytest.raises(TrainyardError) as refused:
        user_package(import_path, zipped_dag)
    assert str(refused.value) == (
        f"{import_path!r}: it is inside {zipped_dag.parent}, and code is shipped from folders only; unpack the archive "
        "in the DAGs folder"
    )


def test_a_zipped_dag_uses_code_beside_its_archive_and_in_the_environment(zipped_dag: Path) -> None:
    assert user_package("toy:rows", zipped_dag) == {"toy.py": zipped_dag.parents[1] / "toy.py"}
    assert user_package("pydantic.main:BaseModel", zipped_dag) == {}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The file of a DAG in a package that imports what is beside it, and what is installed."""
    files = {
        "dags/shop/__init__.py": "",
        "dags/shop/dag.py": "",
        "dags/shop/recipe.py": "import torch\nimport common.layers as layers\nfrom . import rows\nnetwork = None\n",
        "dags/shop/rows.py": "def rows():\n    from settings import LIMIT\n    from absent import nothing\n",
        "dags/common/layers.py": "from common import sizes\nimport shared\n",
        "dags/common/sizes.txt": "8",
        "dags/settings.py": "LIMIT = 1\n",
        "dags/unused.py": "",
        "dags/yaml.py": "",
        "shared/__init__.py": "import shop.recipe, yaml, trainyard.trainer, pathlib\n",
        "shared/invalid.py": "print 'Python 2'\n",
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "dags" / "shop" / "dag.py"


def test_the_users_packages_that_a_package_imports_are_shipped_too(shop: Path) -> None:
    files = shipped_files("shop.recipe:network", shop)
    assert set(files) == {
        "shop/__init__.py", "shop/dag.py", "shop/recipe.py", "shop/rows.py", "common/layers.py", "common/sizes.txt",
        "settings.py", "shared/__init__.py", "shared/invalid.py",
    }  # fmt: skip
    assert all(path.as_posix().endswith(name) and path.is_file() for name, path in files.items())


def test_the_users_package_is_shipped_although_airflow_imports_it_from_its_folder(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(shop.parents[1]))
    assert {"settings.py", "common/layers.py"} <= set(shipped_files("shop.recipe:network", shop))


def test_an_imported_package_that_is_too_large_is_refused(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "MAX_BYTES", 2**10)
    (shop.parents[1] / "common" / "weights.bin").write_bytes(bytes(2**10))
    with pytest.raises(TrainyardError, match=r"/common has 0 MiB and is shipped with every job"):
        shipped_files("shop.recipe:network", shop)


def test_the_files_that_a_module_depends_on_are_in_all_packages(shop: Path) -> None:
    assert set(imported_files("shop.recipe:network", shop)) == {
        "shop/__init__.py", "shop/recipe.py", "shop/rows.py", "common/layers.py", "common/sizes.txt", "settings.py",
        "shared/__init__.py",
    }  # fmt: skip
