"""List what is stored below a storage root, and what refers to what.

Directories are listed, each once. Of the files, only small documents are read: manifests and model artifacts, and specs
and records of runs where datasets or models may be removed. What is not recognized is not listed, so that it stays.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from trainyard.errors import TrainyardError, noted
from trainyard.files import storage, uris
from trainyard.files.storage import StoredFile
from trainyard.jobs.retention.decision import REFERENCED, SAFE_SECONDS, Inventory, Item, Kind
from trainyard.schemas.datasets import versions
from trainyard.schemas.datasets.manifest import read_version as read_manifest
from trainyard.schemas.evaluation import Evaluation
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.schemas.promotion import Promotion
from trainyard.schemas.references import Reference
from trainyard.schemas.results import ModelResult
from trainyard.schemas.runs.checkpoint import INDEX
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.runs.script_checkpoint import CONTENTS
from trainyard.schemas.specs import TrainSpec, load_spec

REMOVED = ".removed-"
"""How the name of a run's directory begins while it is removed."""
_OWN = frozenset({"runs", "owners", "environments"})
_RUN_PARTS = frozenset(
    {
        "specs", "attempts", "records", "results", "events", "failures", "progress", "usage", "tensorboard",
        "checkpoints", "report.html", "trace.json",
    }
)  # fmt: skip
_RUN_MARKS = frozenset({"specs", "records", "failures", "events", "checkpoints"})
_IN_RUN = re.compile(rf"(?P<root>(?:.*?/)?)runs/[^/]+/[^/]+/(?:{'|'.join(sorted(_RUN_MARKS))})/")
"""A file of a run in a storage root of its own, below the one that is scanned."""
_STAGED = re.compile(r"staged-[0-9a-f]{32}")
_STEP = re.compile(r"step-\d+-group-\d+")
_VERSION = re.compile(r"versions/(\d{8,})\.json")
_HASH = re.compile(r"[0-9a-f]{16}")
_ENVIRONMENT = re.compile(r"(spark-[0-9a-f]{16}\.zip|[0-9a-f]{16}-.+)|\.(spark-|[0-9a-f]{16}-).+\.[0-9a-f]{32}")
"""An archive, or a hidden file of one that is still uploaded, or whose upload was ended."""
Files = list[StoredFile]


@dataclass(frozen=True)
class _Found:
    """An item with the references of its documents, which are not resolved yet."""

    item: Item
    references: tuple[Reference, ...] = ()


def scan(root: str, kinds: Collection[Kind], now: float) -> Inventory:
    """List what is stored below a storage root.

    Args:
        root: The storage root, a URI.
        kinds: The kinds that may be removed. What these do not depend on is not listed.
        now: The time, in seconds since the epoch.
    """
    found: list[_Found] = []
    shared: dict[str, int] = {}
    needs_references = not REFERENCED.isdisjoint(kinds)
    if needs_references or {"runs", "checkpoints"}.intersection(kinds):
        found += _scan_runs(uris.join(root, "runs"), needs_references)
    if needs_references:
        for name in storage.list_directories(root):
            if name not in _OWN and not name.startswith("."):
                found += _scan_products(uris.join(root, name), shared, now)
    if "environments" in kinds:
        found += _scan_environments(uris.join(root, "environments"))
    if "owners" in kinds:
        found += _scan_owners(uris.join(root, "owners"))
    return Inventory(tuple(_resolve(found)), shared)


def newest_change(files: Iterable[StoredFile]) -> float | None:
    """Return when the newest file was written; None if there are none, or a time is not known."""
    times = [file.modified for file in files]
    return None if not times or None in times else max(time for time in times if time is not None)


def _scan_runs(root: str, needs_references: bool) -> Iterator[_Found]:
    for dag in storage.list_directories(root):
        if dag.startswith("."):
            continue
        directory = uris.join(root, dag)
        for run in storage.list_directories(directory):
            uri = uris.join(directory, run)
            if run.startswith(REMOVED):
                files = storage.find_files(uri)
                yield _Found(Item("runs", uri, directory, 0, newest_change(files), _size(files), counted=False))
            elif not run.startswith("."):
                yield from _scan_run(directory, uri, needs_references)


def _scan_run(dag: str, uri: str, needs_references: bool) -> Iterator[_Found]:
    files = storage.find_files(uri)
    parts = {file.path.partition("/")[0] for file in files}
    if not parts & _RUN_MARKS:
        return
    unknown = sorted(part for part in parts - _RUN_PARTS if not _STAGED.fullmatch(part) and not part.startswith("."))
    since = newest_change(files)
    run = Item(
        "runs", uri, dag, since or 0, since, _size(files),
        protected=f"contains {unknown[0]}, which is not recognized" if unknown else "",
    )  # fmt: skip
    references: tuple[Reference, ...] = ()
    if needs_references:
        references, problem = _read_run(uri, files)
        run = replace(run, unreadable=problem)
    yield _Found(run, references)
    for name, group in itertools.groupby(files, lambda file: "/".join(file.path.split("/")[:3])):
        saved, (folder, _, last) = list(group), name.rpartition("/")
        if not name.startswith("checkpoints/"):
            continue
        if is_shared := last == CONTENTS:  # by the checkpoints of a script, which may all be newer
            since = newest_change(file for file in files if file.path.startswith(f"{folder}/"))
        else:
            since = newest_change(saved)
        if is_shared or _STEP.fullmatch(last):
            is_committed = any(file.path == f"{name}/{INDEX}" for file in saved)
            yield _Found(
                Item(
                    "checkpoints", uris.join(uri, name), uri, since or 0, since, _size(saved), counted=False,
                    parent=uri, min_age=0 if is_committed else SAFE_SECONDS,
                )
            )  # fmt: skip


def _read_run(uri: str, files: Files) -> tuple[tuple[Reference, ...], str]:
    """Return what the specs and records of a run refer to, and a document that cannot be read, "" if there is none."""
    references: list[Reference] = []
    datasets: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    for file in sorted(files, reverse=True):  # specs before records
        part, _, task = file.path.partition("/")
        if part not in ("specs", "attempts", "records") or _is_hidden(task):
            continue
        document = uris.join(uri, file.path)
        with noted(unreadable, document), suppress(FileNotFoundError):
            if part != "records":
                spec = load_spec(document)
                references += spec.references()
                if isinstance(spec, TrainSpec):
                    datasets[task] = spec.dataset
            elif result := RunRecord.load(document).result:
                references += result.references()
                if isinstance(result, ModelResult) and task in datasets:
                    references.append(Reference(datasets[task], result.dataset_version))
    return tuple(references), next(iter(unreadable), "")


def _scan_products(top: str, shared: dict[str, int], now: float) -> Iterator[_Found]:
    """Find the datasets and models at and below a directory: they may be at any depth.

    Those of another storage root stay: what its runs refer to is not known here.
    """
    found = [file for file in storage.find_files(top) if not _is_hidden(file.path)]
    roots = tuple({match["root"] for file in found if (match := _IN_RUN.match(file.path))})
    files = [file for file in found if not file.path.startswith(roots)]
    paths = {file.path for file in files}
    datasets = [path.removesuffix("manifest.json") for path in paths if _is_named(path, "manifest.json")]
    models = [path.removesuffix("model.json") for path in paths if _is_named(path, "model.json")]
    below = _divide(files, {*datasets, *models})
    for prefix in sorted(datasets):
        if any(_VERSION.fullmatch(file.path) for file in below[prefix]):
            yield from _scan_dataset(uris.join(top, prefix).rstrip("/"), below[prefix], shared, now)
    for prefix in sorted(models):
        if any(_HASH.fullmatch(file.path.partition("/")[0]) for file in below[prefix]):
            yield from _scan_model(uris.join(top, prefix).rstrip("/"), below[prefix])


def _divide(files: Files, prefixes: Collection[str]) -> dict[str, Files]:
    """Return, for each prefix, the files below it, by their relative paths. A file may be below several."""
    below: dict[str, Files] = {prefix: [] for prefix in prefixes}
    for file in files:
        parts = file.path.split("/")
        for depth in range(len(parts)):
            prefix = "".join(f"{part}/" for part in parts[:depth])
            if prefix in below:
                below[prefix].append(file._replace(path="/".join(parts[depth:])))
    return below


def _scan_dataset(uri: str, files: Files, shared: dict[str, int], now: float) -> Iterator[_Found]:
    committed = {int(m[1]): file for file in files if (m := _VERSION.fullmatch(file.path))}
    numbers = sorted(committed)
    replaced = {number: committed[newer].modified for number, newer in itertools.pairwise(numbers)}
    paths: dict[int, frozenset[str]] = {}
    shards: set[str] = set()
    problem = ""
    leased: set[int] = set()
    try:
        leases = (file.path.removeprefix("leases/") for file in files if file.path.startswith("leases/"))
        leased = versions.read_leases(leases, now)
        for number in numbers:
            manifest = read_manifest(uri, number)
            shards |= {shard.path for split in manifest.splits.values() for shard in split.shards}
            paths[number] = frozenset(uris.join(uri, path) for path in versions.referenced_paths(manifest))
    except (TrainyardError, OSError, ValueError) as error:
        problem = f"its manifests or leases cannot be read: {error}"
    for number in numbers:
        yield _Found(
            Item(
                "datasets", version_uri(uri, number), uri, number,
                replaced.get(number, committed[number].modified), committed[number].bytes,
                paths=paths.get(number, frozenset()), current=number == numbers[-1],
                protected=problem or ("a job reads it" if number in leased else ""),
            )
        )  # fmt: skip
    if problem:
        return
    used = frozenset(itertools.chain.from_iterable(paths.values()))
    for path, written in _group_writes(files):
        directory = uris.join(uri, path)
        if directory in used and path.startswith("shards/"):
            shared[directory] = _size(written)
            written = [file for file in written if file.path not in shards]
            for file in written:
                yield _Found(_unused(uris.join(uri, file.path), uri, [file]))
        elif directory in used:
            shared[directory] = _size(written)
        else:
            yield _Found(_unused(directory, uri, written))


def _group_writes(files: Files) -> Iterator[tuple[str, Files]]:
    """Yield the directories of shards, and the files of statistics and fitted states, with their files."""
    own = [file for file in files if file.path.startswith(("shards/", "statistics/", "fitted/"))]
    for path, group in itertools.groupby(own, lambda file: "/".join(file.path.split("/")[:2])):
        yield path, list(group)


def _unused(uri: str, dataset: str, files: Files) -> Item:
    """Return the item for files of a dataset that no version refers to: of a failed writer, or of an active one."""
    return Item(
        "datasets", uri, dataset, 0, newest_change(files), _size(files), counted=False, min_age=SAFE_SECONDS
    )  # fmt: skip


def _scan_model(uri: str, files: Files) -> Iterator[_Found]:
    folder, unreadable = "", dict[str, str]()
    with noted(unreadable, document := uris.join(uri, "model.json")), suppress(FileNotFoundError):
        folder = ModelArtifact.load(document).folder
    problem = next(iter(unreadable), "")
    replaced = next((file.modified for file in files if file.path == "model.json"), None)
    for name, group in itertools.groupby(files, lambda file: file.path.partition("/")[0]):
        version = list(group)
        if not _HASH.fullmatch(name):
            continue
        paths = {file.path for file in version}
        directory = uris.join(uri, name)
        is_committed = f"{name}/model.json" in paths
        references, own_problem = _read_model(directory) if is_committed else ((), "")
        since = newest_change(version)
        if since is not None and replaced is not None and is_committed:  # a job may have read it until then
            since = max(since, replaced)
        protected = f"{problem} cannot be read" if problem else ""
        if not problem and not folder:
            protected = "the current version of its model is not known"
        yield _Found(
            Item(
                "models", directory, uri, since or 0, since, _size(version), counted=is_committed,
                current=name == folder, min_age=0 if is_committed else SAFE_SECONDS, protected=protected,
                unreadable=own_problem or problem,
            ),
            references,
        )  # fmt: skip


def _read_model(directory: str) -> tuple[tuple[Reference, ...], str]:
    """Return what a version of a model refers to, and a document that cannot be read, "" if there is none."""
    references: list[Reference] = []
    unreadable: dict[str, str] = {}
    with noted(unreadable, uri := uris.join(directory, "model.json")), suppress(FileNotFoundError):
        references += ModelArtifact.load(uri).references()
    with noted(unreadable, uri := uris.join(directory, "promotion.json")), suppress(FileNotFoundError):
        promotion = Promotion.load(uri)
        references += promotion.references()
        with noted(unreadable, promotion.evaluation), suppress(FileNotFoundError):
            references += Evaluation.load(promotion.evaluation).references()
    return tuple(references), next(iter(unreadable), "")


def _scan_environments(root: str) -> Iterator[_Found]:
    for file in storage.find_files(root):
        if match := _ENVIRONMENT.fullmatch(file.path):
            is_whole = bool(match[1])
            yield _Found(
                Item(
                    "environments", uris.join(root, file.path), root, file.modified or 0, file.modified, file.bytes,
                    counted=is_whole, min_age=0 if is_whole else SAFE_SECONDS,
                )
            )  # fmt: skip


def _scan_owners(root: str) -> Iterator[_Found]:
    for file in storage.find_files(root):
        if file.path.endswith(".json") and "/" not in file.path and not file.path.startswith("."):
            uri = uris.join(root, file.path)
            yield _Found(Item("owners", uri, root, 0, file.modified, file.bytes, counted=False, min_age=SAFE_SECONDS))


def version_uri(dataset: str, number: int) -> str:
    """Return the URI of the document that commits a version."""
    return uris.join(dataset, "versions", f"{number:08d}.json")


def _resolve(found: Iterable[_Found]) -> Iterator[Item]:
    """Replace the references of documents by URIs of items. One that is not below this root refers to nothing here."""
    found = list(found)
    uris: dict[tuple[str, int | str | None], list[str]] = {}
    for one in found:
        version = int(one.item.order) if one.item.kind == "datasets" else one.item.uri.rpartition("/")[2]
        if one.item.kind in REFERENCED:
            for key in (_normalize(one.item.group), _last_name(one.item.group)):
                uris.setdefault((key, version), []).append(one.item.uri)
    for one in found:
        referenced = {uri for reference in one.references for uri in uris.get(_key(reference), [])}
        yield replace(one.item, references=one.item.references | (referenced - {one.item.uri}))


def _key(reference: Reference) -> tuple[str, int | str | None]:
    """Return the dataset and the number, or the model and the folder of the weights, as `_resolve` names items."""
    is_absolute = uris.is_absolute(reference.uri)
    version = reference.version[:16] if isinstance(reference.version, str) else reference.version
    return (_normalize if is_absolute else _last_name)(reference.uri), version


def _normalize(uri: str) -> str:
    """Return what is equal for all spellings of a URI: the path. It may be equal for others too, which then stay."""
    path = storage.local_path(uri) if uris.is_local(uri) else None
    if path is not None:
        return str(path.resolve())
    rest = uri.partition("://")[2]
    return "/" + rest.partition("/")[2].strip("/")


def _last_name(uri: str) -> str:
    """Return the last name in a URI: a relative path was relative to a directory that is not known."""
    return uri.rstrip("/").rpartition("/")[2]


def _is_named(path: str, name: str) -> bool:
    return path == name or path.endswith(f"/{name}")


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))


def _size(files: Iterable[StoredFile]) -> int:
    return sum(file.bytes for file in files)
