"""Build the loaders of the training and validation splits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from trainyard.errors import TrainyardError
from trainyard.schemas.datasets.manifest import Column, DatasetManifest
from trainyard.schemas.specs.train import TrainOptions
from trainyard.trainer.data.loader import Columns, Loader, build_order
from trainyard.trainer.data.mixture import Mixture, Portion, build_reader
from trainyard.trainer.data.reading.cache import FOLDER, ShardCache
from trainyard.trainer.data.reading.split_reader import SplitReader
from trainyard.trainer.data.resident import ResidentLoader
from trainyard.trainer.data.weights import build_weights
from trainyard.trainer.folders import name_folder
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.world import World


def build_loaders(
    dataset: str,
    manifest: DatasetManifest,
    mix: Sequence[Portion],
    recipe: Recipe,
    options: TrainOptions,
    world: World,
    on_progress: Callable[[], None],
) -> tuple[Loader, Loader | None]:
    """Return the loaders of the split "train" and, if it exists, of the split "validation".

    Args:
        dataset: The URI of the dataset.
        manifest: Its version.
        mix: The datasets mixed into it.
        recipe: The recipe.
        options: The options of the loop.
        world: The workers.
        on_progress: Called now and then while weights of rows are read.

    Raises:
        TrainyardError: An option does not match the dataset.
    """
    cache = ShardCache(name_folder(FOLDER), int(options.cache_gb * 2**30))
    validation = None
    if "validation" in manifest.splits:
        reader = SplitReader(dataset, manifest, "validation", recipe.columns, cache=cache)
        _check_metrics(recipe, reader, world)
        order = build_order(reader, options.batch_size, options.seed, False, None, None)
        validation = Loader(
            reader, order, world.rank, world.size, pin=world.device.type == "cuda", sequences=recipe.sequences,
            decode=recipe.decode,
        )  # fmt: skip
    extra = (options.weight_by,) if options.weight_by else ()
    columns = tuple(dict.fromkeys((*recipe.columns, *extra)))
    train = build_reader(dataset, manifest, "train", columns, mix, cache)
    return _build_training_loader(train, recipe, options, world, on_progress), validation


def _build_training_loader(
    data: SplitReader | Mixture,
    recipe: Recipe,
    options: TrainOptions,
    world: World,
    on_progress: Callable[[], None],
) -> Loader:
    batch = options.batch_size
    if batch > data.rows:
        raise TrainyardError(
            f"batch_size={batch} is larger than the split {data.name!r}, which has {data.rows} rows. "
            f"Write batch_size={max(1, data.rows // 10)}, or export more rows."
        )
    if batch < world.size:
        raise TrainyardError(
            f"batch_size={batch} is the global batch, and smaller than the number of workers, {world.size}. "
            f"Write batch_size={world.size} or more."
        )
    weights = build_weights(data, _get_balance(recipe, options, data.columns), options.weight_by, world, on_progress)
    order = build_order(data, batch, options.seed, True, options.bucket_by, weights)
    is_gpu = world.device.type == "cuda"
    if options.gpu_cache_gb and is_gpu:
        check_resident(recipe, data)
        free_bytes = torch.cuda.mem_get_info(world.device)[0]
        if has_room(data, options.gpu_cache_gb, free_bytes, world.shares_gpu):
            return ResidentLoader(
                data, order, world.rank, world.size, world.device, weights, on_progress, recipe.columns
            )
    transform = partial(apply_transform, recipe.transform) if recipe.transform else None
    return Loader(
        data, order, world.rank, world.size, transform, is_gpu, recipe.sequences,
        recipe.decode, recipe.augment, weights, recipe.columns,
    )  # fmt: skip


def apply_transform(transform: Callable[[Columns], Columns], columns: Columns) -> Columns:
    """Return what a recipe's `transform` makes of the columns of a batch.

    Raises:
        TrainyardError: It needs a column that is not read, or a tensor has another number of rows than the batch, of
            which micro-batches get their part.
    """
    first, values = next(iter(columns.items()))
    rows = values.size(0)
    names = ", ".join(columns)
    try:
        transformed = transform(columns)
    except KeyError as error:
        raise TrainyardError(
            f"the recipe's transform= raised KeyError({error}); the columns of its batch are {names}. To use another "
            "column of the dataset, name it in extra_columns= of the recipe."
        ) from error
    if not isinstance(transformed, Mapping):
        raise TrainyardError(
            f"the recipe's transform= returned a {type(transformed).__name__}; return a dict of tensors by column."
        )
    for name, column in transformed.items():
        if not isinstance(column, Tensor) or column.ndim == 0 or column.size(0) != rows:
            is_tensor = isinstance(column, Tensor)
            described = f"shape {list(column.shape)}" if is_tensor else f"type {type(column).__name__}"
            raise TrainyardError(
                f"the recipe's transform= returned column {name!r} of {described} for a batch of {rows} rows. Return "
                "as many rows in each tensor, because micro-batches have a part of them; repeat one value for each "
                f"row, as by torch.as_tensor(value).expand(len(columns[{first!r}]))."
            )
    return transformed


def check_resident(recipe: Recipe, data: SplitReader | Mixture) -> None:
    """Check that batches can be made on a GPU.

    Raises:
        TrainyardError: The recipe changes batches on the CPU, or a column has rows of different sizes.
    """
    for column in data.columns:
        if column.kind == "list" or column.type == "binary":
            raise TrainyardError(
                f"gpu_cache_gb keeps rows of one size in the memory of the GPU, but those of column {column.name!r} "
                "have different sizes. Remove gpu_cache_gb."
            )
    if recipe.transform:
        raise TrainyardError(
            "gpu_cache_gb takes batches from the memory of the GPU, but the recipe's transform changes them on the "
            "CPU. Remove gpu_cache_gb, or move the work of transform to the export's prepare, or into the model."
        )


def has_room(data: SplitReader | Mixture, gpu_cache_gb: float, free_bytes: int, shares_gpu: bool) -> bool:
    """Return whether a split fits into the memory of a GPU; if not, a line says why.

    Args:
        data: The split.
        gpu_cache_gb: What it may take, in GiB.
        free_bytes: What the GPU has free, before it has a model.
        shares_gpu: Whether workers share the GPU, each of which would keep the split.
    """
    needed, free = data.rows * data.row_bytes / 2**30, free_bytes / 2**30
    if shares_gpu:
        reason = "workers share it"
    elif needed > gpu_cache_gb:
        reason = f"it takes {needed:.3g} GiB, but gpu_cache_gb={gpu_cache_gb:g}"
    elif needed > free:
        reason = f"it takes {needed:.3g} GiB, but {free:.3g} GiB of the GPU are free"
    else:
        return True
    print(f"split {data.name!r} is not kept on the GPU: {reason}.", flush=True)
    return False


def _check_metrics(recipe: Recipe, data: SplitReader, world: World) -> None:
    """Check that each worker has a row for metrics that store rows: torchmetrics cannot gather an empty list."""
    if data.rows >= world.size:
        return
    from torchmetrics import Metric

    for name, metric in recipe.metrics_by_name.items():
        states = (
            state for part in metric.modules() if isinstance(part, Metric) for state in part.metric_state.values()
        )
        if any(isinstance(state, list) for state in states):
            raise TrainyardError(
                f"the split {data.name!r} has {data.rows} rows, fewer than the {world.size} workers, and the metric "
                f"{name!r} needs a row on each of them. Use at most {data.rows} workers, write thresholds= if the "
                "metric has this option, remove it, or export more rows."
            )


def _get_balance(recipe: Recipe, options: TrainOptions, columns: Iterable[Column]) -> str | None:
    """Return the label whose values are drawn equally often."""
    if options.balance and recipe.label is None:
        raise TrainyardError(
            "balance=True draws the values of the label equally often; set label= in the recipe. With heads=, compute "
            "a column of weights in prepare, and write weight_by=."
        )
    if options.balance and any(column.nullable and column.name == recipe.label for column in columns):
        raise TrainyardError(
            f"balance=True draws the values of the label {recipe.label!r} equally often, and null would be one of "
            "them. Compute a column of weights in prepare, and write weight_by=."
        )
    return recipe.label if options.balance else None
