"""Build the loaders of the training and validation splits."""

from __future__ import annotations

from collections.abc import Sequence

from trainyard.errors import TrainyardError
from trainyard.schemas.manifest import DatasetManifest
from trainyard.schemas.specs.train import TrainOptions
from trainyard.trainer.data.cache import ShardCache, cache_directory
from trainyard.trainer.data.loader import Loader, build_order
from trainyard.trainer.data.mixture import Mixture, Portion, build_reader
from trainyard.trainer.data.split_reader import SplitReader
from trainyard.trainer.data.weights import build_weights
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.world import World


def build_loaders(
    dataset: str, manifest: DatasetManifest, mix: Sequence[Portion], recipe: Recipe, options: TrainOptions, world: World
) -> tuple[Loader, Loader | None]:
    """Return the loaders of the split "train" and, if it exists, of the split "validation".

    Raises:
        TrainyardError: An option does not match the dataset.
    """
    cache = ShardCache(cache_directory(), int(options.cache_gb * 2**30))
    validation = None
    if "validation" in manifest.splits:
        reader = SplitReader(dataset, manifest, "validation", recipe.columns, cache=cache)
        validation = _build_loader(reader, recipe, options, world, training=False)
    extra = (options.weight_by,) if options.weight_by else ()
    columns = tuple(dict.fromkeys((*recipe.columns, *extra)))
    train = build_reader(dataset, manifest, "train", columns, mix, cache)
    return _build_loader(train, recipe, options, world), validation


def _build_loader(
    data: SplitReader | Mixture, recipe: Recipe, options: TrainOptions, world: World, training: bool = True
) -> Loader:
    batch = options.batch_size
    if training and batch > data.rows:
        raise TrainyardError(
            f"batch_size={batch} is larger than the split {data.name!r}, which has {data.rows} rows. "
            f"Write batch_size={max(1, data.rows // 10)}, or export more rows."
        )
    if training and batch < world.size:
        raise TrainyardError(
            f"batch_size={batch} is the global batch, and smaller than the number of workers, {world.size}. "
            f"Write batch_size={world.size} or more."
        )
    bucket_by = options.bucket_by if training else None
    weights = build_weights(data, _get_balance(recipe, options), options.weight_by, world) if training else None
    order = build_order(data, batch, options.seed, training, bucket_by, weights)
    return Loader(
        data, order, world.rank, world.size, recipe.transform if training else None, world.device.type == "cuda",
        recipe.sequences, recipe.decode, recipe.augment if training else {}, weights,
    )  # fmt: skip


def _get_balance(recipe: Recipe, options: TrainOptions) -> str | None:
    """Return the label whose values are drawn equally often."""
    if options.balance and recipe.label is None:
        raise TrainyardError("balance=True draws the values of the label equally often; set label= in the recipe.")
    return recipe.label if options.balance else None
