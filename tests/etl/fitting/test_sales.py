"""A model of sales is as good on the categories of an export as on those of scikit-learn's encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import OrdinalEncoder

from tests.etl.models import make_log, make_task_key
from trainyard.etl import evaluate
from trainyard.etl.jobs.exporting import export
from trainyard.schemas.specs.export import ExportSpec
from trainyard.schemas.specs.source import Source
from trainyard.trainer import fit

pytestmark = [pytest.mark.spark, pytest.mark.full]
CATEGORIES = ["store", "product", "weather", "weekday"]
ROWS, STORES = 24_000, 8


def make_sales() -> pd.DataFrame:
    """Return the sales of stores on days; the last days have a product that earlier ones do not."""
    random = np.random.default_rng(0)
    day = np.sort(random.integers(0, 400, ROWS))
    store, product = random.integers(STORES, size=ROWS), random.zipf(1.6, ROWS) % 40
    product[day > 370] = np.where(random.random((day > 370).sum()) < 0.05, 99, product[day > 370])
    weather, weekday = random.integers(4, size=ROWS), day % 7
    level = random.normal(size=STORES)[store] * 3 + random.normal(size=100)[product] * 2
    sold = 10 + level + np.array([0, 1, -2, 0.5])[weather] + np.sin(weekday) * 2 + random.normal(size=ROWS)
    frame = pd.DataFrame({"day": day, "sold": sold.astype(np.float32)})
    frame["store"] = [f"Store {number}" for number in store]
    frame["product"] = [f"p{number}" for number in product]
    frame["weather"] = [None if random.random() < 0.1 else ["sun", "clouds", "rain", "snow"][w] for w in weather]
    frame["weekday"] = weekday
    frame["split"] = np.select([day < 330, day < 365], ["train", "validation"], "test")
    return frame


def train(spark: Any, directory: Path, sales: pd.DataFrame, **options: Any) -> float:
    """Export sales, train on them, and return the RMSE of the test rows."""
    sales.to_parquet(directory / "sales.parquet")
    spec = ExportSpec(
        task_key=make_task_key(directory), prepare="prepares:rows", dataset=str(directory / "dataset"),
        source=Source(format="parquet", path=str(directory / "sales.parquet")), splits="split", shards=4,
        **options,
    )  # fmt: skip
    export.run(spark, spec, make_log(spec))
    sizes = {} if options else {"categories": {name: int(sales[name].max()) + 1 for name in CATEGORIES}}
    model = str(directory / "model")
    fit(
        "tests.etl.fitting.recipes:sales", dataset=spec.dataset, model=model, recipe_params=sizes, epochs=8,
        batch_size=256, seed=1,
    )  # fmt: skip
    rows = spark.read.format("trainyard").option("split", "test").load(spec.dataset)
    return float(evaluate(rows, model, "rmse").model.metrics["rmse"])


def test_the_error_of_a_model_of_sales_is_that_with_an_encoder_of_scikit_learn(spark, tmp_path):
    sales = make_sales()
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-1)
    encoder.fit(sales.loc[sales.split == "train", CATEGORIES])
    encoded = sales.assign(
        **dict(zip(CATEGORIES, encoder.transform(sales[CATEGORIES]).T.astype(np.int64) + 1, strict=True))
    )
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    ours = train(spark, tmp_path / "ours", sales, categories=CATEGORIES)
    theirs = train(spark, tmp_path / "theirs", encoded)
    print(f"RMSE {ours:.4f} with categories=, {theirs:.4f} with scikit-learn's encoder")
    assert ours < theirs * 1.03
    assert theirs < 0.5 * sales.loc[sales.split == "test", "sold"].std()
