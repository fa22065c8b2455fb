"""What is removed of a real storage, and what an interruption of the removal leaves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.jobs.retention.stored import DAY, NOW, Store, make_old
from tests.plugins.resource_managers import application as entry
from trainyard.errors import TrainyardError
from trainyard.files import storage
from trainyard.jobs.orphans import LiveApplication
from trainyard.jobs.retention.decision import KINDS, Decision, Kind, Options, Usage, decide
from trainyard.jobs.retention.inventory import scan
from trainyard.jobs.retention.removal import _remove_one, remove
from trainyard.jobs.retention.usage import find_usage
from trainyard.schemas import model_artifact
from trainyard.schemas.datasets import manifest, versions
from trainyard.schemas.datasets.fitted_state import FittedReference
from trainyard.schemas.runs import checkpoint
from trainyard.schemas.runs.owner import Owner
from trainyard.schemas.specs import SPECS, TrainSpec
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.yarn.resource_manager import Application, _application


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def plan(store: Store, keep: int = 1, usage: Usage = Usage(), kinds: tuple[Kind, ...] = KINDS) -> Decision:  # noqa: B008
    return decide(scan(store.root, kinds, NOW), usage, Options(30 * DAY, keep, frozenset(kinds)), NOW)


def listed(store: Store, **options: Any) -> set[str]:
    """Return what would be removed, relative to the root."""
    return {one.item.uri.removeprefix(f"{store.root}/") for one in plan(store, **options).removals}


def collect(store: Store, **options: Any) -> list[str]:
    """Remove what is listed, and return what was logged."""
    lines: list[str] = []
    remove(plan(store, **options).removals, NOW, lines.append)
    return lines


def test_old_runs_beyond_the_newest_are_removed(store: Store) -> None:
    for run_id, days in (("r1", 100), ("r2", 90), ("r3", 10)):
        store.run(run_id, days)
    assert listed(store) == {"runs/toy/r1", "runs/toy/r2"}
    assert listed(store, keep=2) == {"runs/toy/r1"}
    assert collect(store) == []
    assert storage.list_names(f"{store.root}/runs/toy") == ["r3"]


def test_a_run_with_something_of_others_stays(store: Store) -> None:
    store.run("r2", 1)
    run = store.run("r1", 100)
    storage.replace(f"{run}/notes.txt", b"mine")
    make_old(store.path(run), 100)
    assert listed(store) == set()


def test_directories_that_are_not_recognized_are_never_listed(store: Store) -> None:
    for name in ("runs/toy/mine/a.txt", "environments/mine.zip", "predictions/part-0.parquet", "a/model.json", "notes"):
        storage.replace(f"{store.root}/{name}", b"{}")
    storage.replace(f"{store.root}/other/versions/1.json", b"{}")
    storage.replace(f"{store.root}/other/manifest.json", b"{}")
    make_old(store.folder, 1000)
    assert listed(store) == set()


@pytest.mark.parametrize("name", ["east", "regions/east"])
def test_what_is_in_a_storage_root_of_its_own_stays(store: Store, name: str) -> None:
    """Its runs refer to versions that nothing else does."""
    nested = Store(store.folder / name)
    nested.run("r1", 1, job="export", uri=nested.dataset([100, 50]), version=1)
    nested.model(1, 100), nested.model(2, 50)
    beside = store.dataset([100, 50], name="regions/west")
    assert listed(store) == {f"{beside.removeprefix(store.root)}/versions/00000001.json".lstrip("/")}


def test_checkpoints_of_runs_that_stay_are_removed_alone(store: Store) -> None:
    store.run("r2", 1)
    run = store.run("r1", 1)
    store.checkpoint(run, 10, days=50)
    store.checkpoint(run, 20, days=5)
    assert listed(store) == {"runs/toy/r1/checkpoints/train/step-00000010-group-1"}
    collect(store)
    assert [one.updates for one in checkpoint.list_checkpoints(f"{run}/checkpoints/train")] == [20]


def test_files_that_checkpoints_of_a_script_share_stay_until_all_of_them_are_old(store: Store) -> None:
    """The newest checkpoint may need the oldest file."""
    store.run("r2", 1)
    run = store.run("r1", 1)
    store.script_checkpoint(run, 1, days=50)
    newest = store.path(store.script_checkpoint(run, 2, days=5))
    checkpoints = "runs/toy/r1/checkpoints/train"
    assert listed(store) == {f"{checkpoints}/step-00000001-group-1"}
    collect(store)
    make_old(newest, days=50)
    for content in (newest.parent / "files").iterdir():
        make_old(content, days=50)
    assert listed(store) == {f"{checkpoints}/step-00000002-group-1", f"{checkpoints}/files"}
    collect(store)
    assert not any(name.startswith(checkpoints) for name in store.names())


def test_old_versions_of_a_dataset_are_removed_with_their_shards(store: Store) -> None:
    """Version 2 was replaced 20 days ago, so that version 1 alone is old."""
    dataset = store.dataset([100, 50, 20])
    decision = plan(store)
    assert [one.item.order for one in decision.removals] == [1]
    assert decision.removals[0].bytes == len(b"rows{}") + decision.removals[0].item.bytes
    collect(store)
    assert manifest.list_versions(dataset) == [2, 3]
    assert storage.list_names(f"{dataset}/shards") == ["w2", "w3"]
    assert versions.unreferenced(dataset) == []


def test_a_version_that_a_job_reads_stays(store: Store) -> None:
    dataset = store.dataset([100, 50])
    storage.replace(f"{dataset}/leases/{1:08d}-{int(NOW)}-reader", b"")
    assert listed(store) == set()


def test_a_version_is_not_removed_while_a_lease_cannot_be_read(store: Store) -> None:
    dataset = store.dataset([100, 50])
    storage.replace(f"{dataset}/leases/mine", b"")
    assert listed(store) == set()


def test_a_version_that_a_job_begins_to_read_meanwhile_stays(store: Store) -> None:
    dataset = store.dataset([100, 50])
    decision = plan(store)
    storage.replace(f"{dataset}/leases/{1:08d}-{int(NOW)}-reader", b"")
    lines: list[str] = []
    assert remove(decision.removals, NOW, lines.append) == []
    assert "is read in versions 1, which stay" in lines[0]
    assert storage.exists(f"{dataset}/shards/w1/train.arrow") and manifest.list_versions(dataset) == [1, 2]


def test_what_a_crashed_writer_left_is_removed_when_no_writer_can_be_at_work(store: Store) -> None:
    dataset = store.dataset([100])
    for name, days in (("crashed", 40), ("writing", 1)):
        storage.replace(f"{dataset}/shards/{name}/train.arrow", b"rows")
        make_old(store.path(f"{dataset}/shards/{name}"), days)
    assert listed(store) == {"toy/dataset/shards/crashed"}
    collect(store)
    assert storage.list_names(f"{dataset}/shards") == ["w1", "writing"]


def test_what_was_fitted_for_removed_versions_is_removed_and_that_of_others_stays(store: Store) -> None:
    dataset = store.dataset([100, 90, 1])
    for number, letter in ((1, "a"), (2, "b"), (3, "b")):
        fitted = FittedReference(sha256=letter * 64)
        version = manifest.read_version(dataset, number).model_copy(update={"fitted": fitted})
        storage.replace(f"{dataset}/versions/{number:08d}.json", version.to_json().encode())
        storage.replace(f"{dataset}/{fitted.path}", b"{}")
        make_old(store.path(f"{dataset}/versions/{number:08d}.json"), [100, 90, 1][number - 1])
    make_old(store.path(f"{dataset}/fitted"), 100)
    collect(store)
    assert manifest.list_versions(dataset)[-1] == 3
    assert storage.list_names(f"{dataset}/fitted") == [f"{'b' * 64}.json"]


def test_what_was_committed_meanwhile_stays(store: Store) -> None:
    """The shards of a slow writer, which commits after they were listed."""
    dataset = store.dataset([100])
    storage.replace(f"{dataset}/shards/w2/train.arrow", b"rows")
    storage.replace(f"{dataset}/statistics/w2.json", b"{}")
    make_old(store.path(dataset), 100)
    decision = plan(store)
    assert len(decision.removals) == 2
    first = manifest.read_version(dataset, 1)
    part = first.partitions[""].model_copy(update={"directory": "shards/w2", "version": 2})
    manifest.commit(dataset, first.model_copy(update={"number": 2, "partitions": {"": part}}))
    remove(decision.removals, NOW, print)
    assert storage.exists(f"{dataset}/shards/w2/train.arrow") and storage.exists(f"{dataset}/statistics/w2.json")


def test_old_versions_of_a_model_are_removed_but_not_the_current_one(store: Store) -> None:
    """Whatever was written last: the current one was trained again, with the same weights."""
    first, second, third = (store.model(number, days) for number, days in ((1, 100), (2, 90), (3, 80)))
    storage.copy(f"{first}/model.json", f"{store.root}/toy/model/model.json")
    assert listed(store) == {second.removeprefix(f"{store.root}/")}
    collect(store)
    assert model_artifact.read_current(f"{store.root}/toy/model").folder == first.rpartition("/")[2]
    assert storage.exists(first) and storage.exists(third)


def test_the_age_of_a_version_of_a_model_counts_from_the_last_replacement(store: Store) -> None:
    """Until then a job may have begun to read it."""
    for number in (1, 2):
        store.model(number, 100)
    assert len(listed(store)) == 1
    make_old(store.path(f"{store.root}/toy/model/model.json"), 1)
    assert listed(store) == set()


def test_a_model_that_becomes_current_meanwhile_stays(store: Store) -> None:
    first = store.model(1, 100)
    store.model(2, 90)
    decision = plan(store)
    storage.copy(f"{first}/model.json", f"{store.root}/toy/model/model.json")
    lines: list[str] = []
    assert remove(decision.removals, NOW, lines.append) == []
    assert "it has become the current version of the model" in lines[0]


def test_the_models_of_epochs_are_models_of_their_own(store: Store) -> None:
    store.model(1, 100)
    store.model(2, 100, name="toy/model/epochs/001")
    store.model(3, 90, name="toy/model/epochs/001")
    assert listed(store) == {f"toy/model/epochs/001/{2:016x}"}


def test_a_version_stays_that_a_model_was_trained_on(store: Store) -> None:
    dataset = store.dataset([100, 99, 98, 97])
    store.model(1, 100, dataset=dataset, version=2)
    assert listed(store) == {"toy/dataset/versions/00000001.json", "toy/dataset/versions/00000003.json"}


@pytest.mark.parametrize("spelled", ["{path}", "file://{path}", "file://{path}/", "toy/dataset"])
def test_a_reference_is_found_however_it_is_spelled(store: Store, spelled: str) -> None:
    dataset = store.dataset([100, 99, 98])
    store.model(1, 100, dataset=spelled.format(path=store.path(dataset)), version=1)
    assert listed(store) == {"toy/dataset/versions/00000002.json"}


def test_a_version_stays_that_a_run_that_stays_wrote_or_read(store: Store) -> None:
    dataset = store.dataset([100, 99, 98, 97])
    store.run("r1", 1, job="export", uri=dataset, version=2)
    store.run("r0", 100, job="evaluate", dataset=dataset, dataset_version=1)
    assert listed(store) == {
        "runs/toy/r0", "toy/dataset/versions/00000001.json", "toy/dataset/versions/00000003.json"
    }  # fmt: skip


def test_a_record_with_a_version_alone_is_of_the_dataset_in_the_spec(store: Store) -> None:
    dataset = store.dataset([100, 99, 98])
    run = store.run("r1", 1, job="train", uri=f"{store.root}/toy/model", dataset_version=1)
    key = TaskKey(dag_id="toy", run_id="r1", task_id="train", directory=run)
    spec = TrainSpec(task_key=key, recipe="toy.recipe:network", dataset=dataset, model="/elsewhere")
    storage.replace(f"{run}/specs/train.json", spec.to_json().encode())
    assert listed(store) == {"toy/dataset/versions/00000002.json"}


@pytest.mark.parametrize(
    "kind", ["export spec", "featurize spec", "train spec", "script spec", "evaluate spec", "predict spec"]
)
@pytest.mark.parametrize("file", ["specs/train.json", "attempts/train/1.json"])
def test_what_the_spec_of_a_run_names_stays(store: Store, kind: str, file: str) -> None:
    """Each kind of spec has some of the fields that name a version of a dataset or of a model."""
    dataset, (first, *_) = store.dataset([100, 99, 98]), [store.model(number, 100) for number in (1, 2, 3)]
    model, _, folder = first.rpartition("/")
    key = TaskKey(dag_id="toy", run_id="r1", task_id="train", directory=store.run("r1", 1))
    named: dict[str, Any] = {
        "source": {"format": "trainyard", "path": dataset, "options": {"Version": "1"}},
        "dataset": dataset, "dataset_version": 1, "weights": {model: folder.ljust(64, "0")}, "model": model,
        "mix": [{"dataset": dataset, "version": 1, "share": 0.5}],
    }  # fmt: skip
    others = {
        "prepare": "toy.etl:prepare", "recipe": "toy.recipe:network", "script": "toy.script", "layer": "body",
        "metrics": ["accuracy"], "keys": ["id"], "output": f"{store.root}/output",
    }  # fmt: skip
    spec = SPECS[kind]
    fields = {name: value for name, value in (named | others).items() if name in spec.model_fields}
    storage.replace(f"{key.directory}/{file}", spec(task_key=key, **fields).to_json().encode())
    removed = listed(store)
    assert ("toy/dataset/versions/00000001.json" not in removed) == bool({"source", "dataset_version"} & set(fields))
    assert (f"toy/model/{folder}" not in removed) == ("weights" in fields)
    assert {"toy/dataset/versions/00000002.json", f"toy/model/{2:016x}"} <= removed


def test_what_a_promotion_refers_to_stays(store: Store) -> None:
    """The champion was copied from version 1 of the model, which was evaluated on version 2 of the dataset."""
    dataset = store.dataset([100, 99, 98, 97])
    first = store.model(1, 100)
    store.model(2, 99)
    store.model(3, 98)
    champion = store.model(1, 100, name="toy/champion")
    store.promotion(champion, first, 100, dataset, version=2)
    assert listed(store) == {
        f"toy/model/{2:016x}", "toy/dataset/versions/00000001.json", "toy/dataset/versions/00000003.json"
    }  # fmt: skip


@pytest.mark.parametrize("text", [b"{", b'{"version": 99}', b"[]"])
def test_no_version_is_removed_while_a_reference_cannot_be_read(store: Store, text: bytes) -> None:
    store.dataset([100, 99, 98])
    run = store.run("r1", 1)
    storage.replace(f"{run}/records/other.json", text)
    decision = plan(store)
    assert decision.removals == ()
    assert f"perhaps referenced: {run}/records/other.json cannot be read" in decision.kept


def test_a_dataset_with_an_unreadable_version_stays(store: Store) -> None:
    dataset = store.dataset([100, 99, 98])
    store.path(f"{dataset}/versions/00000002.json").write_text("{")
    make_old(store.path(dataset), 100)
    assert listed(store) == set()


def test_environments_are_removed_while_nothing_is_active(store: Store) -> None:
    names = [f"spark-{'a' * 16}.zip", f"{'b' * 16}-python.tar.gz"]
    for number, name in enumerate(names):
        storage.replace(f"{store.root}/environments/{name}", b"zip")
        make_old(store.folder / "environments" / name, 100 - number)
    active = find_usage(store.root, [("toy", "r1")], [], [], lambda _: None)
    assert listed(store, usage=active) == set()
    assert listed(store) == {f"environments/{names[0]}"}


def test_what_an_ended_upload_of_an_environment_left_is_removed(store: Store) -> None:
    names = [f"{'b' * 16}-python.tar.gz", f".{'b' * 16}-python.tar.gz.{'c' * 32}", f".spark-{'a' * 16}.zip.{'d' * 32}"]
    for name, days in zip(names, (100, 100, 1), strict=True):
        storage.replace(f"{store.root}/environments/{name}", b"zip")
        make_old(store.folder / "environments" / name, days)
    assert listed(store) == {f"environments/{names[1]}"}
    assert listed(store, keep=5) == {f"environments/{names[1]}"}, "it does not count as one of the newest"


def test_the_environment_that_the_connection_names_stays(store: Store) -> None:
    names = [f"{letter * 16}-environment.tar.gz" for letter in "abc"]
    for name in names:
        storage.replace(f"{store.root}/environments/{name}", b"tar")
        make_old(store.folder / "environments" / name, 100)
    named = find_usage(store.root, [], [], [], lambda _: None, [f"hdfs:///elsewhere/{names[0]}"])
    assert f"environments/{names[0]}" not in listed(store, usage=named)
    assert len(listed(store, usage=named)) == 1, "the newest stays too"
    assert len(listed(store)) == 2


AIRFLOW = frozenset({"trainyard_airflow_1"})


def own(store: Store, run_id: str, airflow: str = "trainyard_airflow_1", days: float = 100) -> str:
    """Write the owner of a submission of a run."""
    directory = store.run(run_id, days)
    key = TaskKey(dag_id="toy", run_id=run_id, task_id="train", directory=directory)
    Owner(task_key=key, airflow=airflow).save(store.root, f"trainyard-submission-{run_id}")
    make_old(store.folder / "owners", days)
    return directory


def live(run_id: str, owner: Owner | None) -> LiveApplication:
    one: Application = _application(entry(1, applicationTags=f"trainyard,trainyard-submission-{run_id}"))
    return LiveApplication(one, owner, "running", "in use" if owner else "unknown owner")


def usage_of(store: Store, *applications: LiveApplication, state: str | None = "success") -> Usage:
    return find_usage(store.root, [], applications, AIRFLOW, lambda _: state)


@pytest.fixture
def owned(store: Store) -> Store:
    """An old run with an owner record, and a newer one."""
    own(store, "r1")
    store.run("r2", 1)
    return store


def test_the_run_of_an_application_that_is_live_stays(owned: Store) -> None:
    owner = Owner(task_key=TaskKey(dag_id="toy", run_id="r1", task_id="train", directory="d"))
    assert listed(owned, usage=usage_of(owned, live("r1", owner))) == set()


def test_no_run_is_removed_while_a_live_application_has_no_owner(owned: Store) -> None:
    assert listed(owned, usage=usage_of(owned, live("other", None)), kinds=("runs", "checkpoints")) == set()


def test_the_run_of_a_task_that_has_not_ended_stays(owned: Store) -> None:
    assert listed(owned, usage=usage_of(owned, state="deferred")) == set()


def test_the_run_of_a_task_of_another_airflow_stays(store: Store) -> None:
    own(store, "r1", airflow="trainyard_airflow_2")
    store.run("r2", 1)
    assert listed(store, usage=usage_of(store)) == set()


def test_the_run_and_the_owner_of_a_task_that_has_ended_are_removed(owned: Store) -> None:
    expected = {"owners/trainyard-submission-r1.json", "runs/toy/r1"}
    assert listed(owned, usage=usage_of(owned)) == expected
    assert collect(owned, usage=usage_of(owned)) == []
    assert not [name for name in owned.names() if name.startswith(("owners/", "runs/toy/r1/"))]


def test_an_active_dag_run_keeps_its_directory_whatever_its_name(store: Store) -> None:
    run_id = "manual__2026-01-01T00:00:00+00:00"
    store.run(run_id, 100)
    store.run("r2", 1)
    assert listed(store, usage=find_usage(store.root, [("toy", run_id)], [], [], lambda _: None)) == set()


def test_what_changed_meanwhile_stays(store: Store) -> None:
    run = store.run("r1", 100)
    store.run("r2", 1)
    decision = plan(store)
    storage.replace(f"{run}/events/train/driver.1.jsonl", b"{}")
    make_old(store.path(run) / "events", 0)
    lines: list[str] = []
    assert remove(decision.removals, NOW, lines.append) == []
    assert "it was changed meanwhile" in lines[0] and storage.exists(f"{run}/records/train.json")


def test_a_second_removal_removes_nothing(store: Store) -> None:
    fill(store)
    collect(store)
    left = store.names()
    assert listed(store) == set()
    assert store.names() == left


def fill(store: Store) -> None:
    """Write two of everything, the first of which is removed."""
    store.dataset([100, 50])
    for number, days in ((1, 100), (2, 50)):
        store.model(number, days)
        run = store.run(f"r{number}", days)
        store.checkpoint(run, 10, days)
    store.checkpoint(store.run("r3", 1), 10, 50)


class Killed(BaseException):
    """The end of the process: no code of the command sees it."""


def complete(store: Store) -> dict[str, bool]:
    """Return whether everything that a reader takes for complete has all of its files."""
    dataset, model = f"{store.root}/toy/dataset", f"{store.root}/toy/model"
    found = {}
    for version in versions.iterate(dataset):
        paths = [s.path for split in version.splits.values() for s in split.shards]
        paths += [part.statistics for part in version.partitions.values()]
        found[f"version {version.number}"] = all(storage.exists(f"{dataset}/{path}") for path in paths)
    for name in storage.list_names(model):
        if storage.exists(f"{model}/{name}/model.json"):
            found[f"model {name}"] = storage.exists(f"{model}/{name}/weights.safetensors")
    for run in storage.list_names(f"{store.root}/runs/toy"):
        if not run.startswith("."):
            directory = f"{store.root}/runs/toy/{run}"
            found[run] = storage.list_names(f"{directory}/events/train") != [] and storage.exists(
                f"{directory}/records"
            )
            for one in checkpoint.list_checkpoints(f"{directory}/checkpoints/train"):
                if storage.exists(f"{one.uri}/{checkpoint.INDEX}"):
                    found[one.uri] = storage.exists(f"{one.uri}/__0_0.distcp")
    return found


LAST = {"model.json", checkpoint.INDEX, "records"}
"""What makes something complete; the file system lists it last."""


class Sorted:
    """The entries of a directory, in an order that is the worst for a removal in the order of the names."""

    def __init__(self, path: Any, scan_directory: Callable[[Any], Any] = os.scandir) -> None:
        with scan_directory(path) as entries:
            self.entries = sorted(entries, key=lambda entry: (entry.name in LAST, entry.name))

    def __enter__(self) -> Iterator[Any]:
        return iter(self.entries)

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""


def kill_at(patch: pytest.MonkeyPatch, step: int) -> Callable[[], bool]:
    """Let the process end before its operation number `step` on a file, and return whether it came to that."""
    count, killed = 0, False
    patch.setattr(os, "scandir", Sorted)

    def count_calls(operation: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal count, killed
            count += 1
            if count > step:
                killed = True
                raise Killed
            return operation(*arguments, **options)

        return counted

    for name in ("unlink", "remove", "rmdir", "rename"):
        patch.setattr(os, name, count_calls(getattr(os, name)))
    return lambda: killed


@pytest.mark.slow
def test_a_removal_that_ends_at_any_moment_leaves_nothing_that_is_complete_without_its_files(tmp_path: Path) -> None:
    """It is ended before each of its operations in turn; the next removal then removes the rest."""
    expected: set[str] | None = None
    for step in range(200):
        store = Store(tmp_path / str(step))
        fill(store)
        with pytest.MonkeyPatch.context() as patch:
            was_killed = kill_at(patch, step)
            with suppress(Killed):
                collect(store)
        assert all(complete(store).values()), f"ended before operation {step}: {complete(store)}"
        collect(store)
        assert listed(store) == set()
        expected = store.names() if expected is None else expected
        assert store.names() == expected, f"ended before operation {step}"
        if not was_killed():
            assert step > 10
            return
    pytest.fail("the removal takes more operations than expected")


def test_one_that_cannot_be_removed_does_not_keep_the_others(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for run_id in ("r1", "r2"):
        store.run(run_id, 100)
    store.run("r3", 1)
    move = storage.move

    def refuse(source: str, target: str) -> None:
        if source.endswith("/r1"):
            raise PermissionError(source)
        move(source, target)

    monkeypatch.setattr(storage, "move", refuse)
    (line,) = collect(store)
    assert "r1 stays: PermissionError" in line
    assert storage.list_names(f"{store.root}/runs/toy") == ["r1", "r3"]


def test_on_a_storage_without_renames_the_records_of_a_run_are_removed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(Path("/retention"))
    store.root = "memory://retention"
    removed: list[str] = []
    run = f"{store.root}/runs/toy/r1"
    storage.replace(f"{run}/records/train.json", b"{}")
    storage.replace(f"{run}/events/train/driver.jsonl", b"{}")
    monkeypatch.setattr(storage, "remove", removed.append)
    inventory = scan(store.root, ("runs",), NOW)
    decision = decide(inventory, Usage(), Options(0, 1, frozenset({"runs"})), NOW * 2)
    assert decision.removals == (), "the newest"
    _remove_one(inventory.items[0])
    assert removed == [f"{run}/records", f"{run}/failures", run]


def test_only_the_directories_that_a_kind_depends_on_are_listed(store: Store) -> None:
    fill(store)
    assert {item.kind for item in scan(store.root, ("runs",), NOW).items} == {"runs", "checkpoints"}
    assert {item.kind for item in scan(store.root, ("owners",), NOW).items} == set()


def test_an_owner_that_cannot_be_read_keeps_all_runs(owned: Store) -> None:
    storage.replace(f"{owned.root}/owners/trainyard-submission-r1.json", b'{"document": "owner", "version": 99}')
    assert listed(owned, usage=usage_of(owned)) == set()


def test_an_inventory_lists_each_directory_and_reads_few_files(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run: its records, of which there is one for each task, and no events, checkpoints or progress."""
    run = store.run("r1", 1)
    for number in range(50):
        storage.replace(f"{run}/events/train/rank-{number}.jsonl", b"{}")
    store.dataset([100, 50])
    read: list[str] = []
    monkeypatch.setattr(storage, "read", lambda uri, limit, of=storage.read: [read.append(uri), of(uri, limit)][1])
    scan(store.root, KINDS, NOW)
    assert sorted(uri.removeprefix(f"{store.root}/") for uri in read) == [
        "runs/toy/r1/records/train.json", "toy/dataset/versions/00000001.json", "toy/dataset/versions/00000002.json"
    ]  # fmt: skip


def test_errors_of_the_storage_are_not_taken_for_an_empty_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.run("r1", 100)

    def fail(_: str) -> None:
        raise TrainyardError("no ticket")

    monkeypatch.setattr(storage, "find_files", fail)
    with pytest.raises(TrainyardError, match="no ticket"):
        plan(store)


@pytest.mark.parametrize("name", ["runs", "runs/toy", "runs/toy/r1/records", "toy/dataset/leases", "owners"])
def test_a_directory_that_cannot_be_listed_ends_the_command(
    store: Store, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have references."""
    fill(store)
    for directory in (f"{store.root}/{name}", f"{store.root}/owners"):
        storage.replace(f"{directory}/.hidden", b"")
    scan_directory = os.scandir

    def refuse(path: Any) -> Any:
        if str(path).endswith(f"/{name}"):
            raise PermissionError(path)
        return scan_directory(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError):
        plan(store, usage=usage_of(store))
