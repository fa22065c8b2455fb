"""Which code is shipped with a job."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from trainyard.errors import TrainyardError
from trainyard.planning.packages import user_package


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
