"""What scoring by Spark costs: predictions against torch alone and predict_batch_udf, ten metrics against one.

    PYTHONPATH=plugins:.:dags python bench/scoring.py [--rows 50000] [--runs 3]

scikit-learn's digits, repeated, as Parquet and as batches; the digits example's network; two cores. "Torch" has the
rows in memory as one tensor and two threads, and the best of four batch sizes. Variants take turns; ratios are medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from sklearn.datasets import load_digits

from tests.trainer import datasets
from trainyard.etl.datasource import source as dataset_format
from trainyard.etl.evaluation.evaluate import evaluate
from trainyard.etl.jobs import arrow_batches
from trainyard.etl.jobs.predict import predict
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.trained_model import load_model

CORES = 2
ONE = ["accuracy"]
TEN = [
    "accuracy", "precision", "recall", "f1", "auroc", "average_precision", "log_loss", "calibration_error",
    "confusion_matrix", "tests.etl.metrics.own:second",
]  # fmt: skip


def session() -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.memory", "4g").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    dataset_format.register(spark)
    return spark


def rows(count: int) -> datasets.Columns:
    found = load_digits()
    chosen = np.arange(count) % len(found.target)
    images = (found.images[chosen, None] / 16).astype(np.float32)
    return {"image": images, "label": found.target[chosen].astype(np.int64)}


def seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def by_torch(model: str, columns: datasets.Columns) -> float:
    """Seconds with the best of four batch sizes."""
    torch.set_num_threads(CORES)
    loaded = load_model(model)
    images = torch.from_numpy(np.asarray(columns["image"], np.float32))

    def apply(size: int) -> None:
        for part in images.split(size):
            loaded.predict({"image": part})

    return min(seconds(lambda size=size: apply(size)) for size in (64, 256, 1024, 4096))


def by_udf(frame: Any, model: str) -> Any:
    from pyspark.ml.functions import predict_batch_udf
    from pyspark.sql.types import FloatType, LongType, StructField, StructType

    def make() -> Any:
        torch.set_num_threads(1)
        loaded = load_model(model)
        return lambda image: loaded.predict({"image": image})

    kind = StructType([StructField("digit", LongType()), StructField("probability", FloatType())])
    applied = predict_batch_udf(make, return_type=kind, batch_size=1000, input_tensor_shapes=[[1, 8, 8]])
    return frame.select("id", applied("image").alias("p")).select("id", "p.*")


def done(frame: Any) -> Callable[[], None]:
    return lambda: frame.write.format("noop").mode("overwrite").save()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    spark, columns = session(), rows(asked.rows)
    with tempfile.TemporaryDirectory() as directory:
        model = str(Path(directory, "model"))
        dataset = datasets.write(Path(directory, "few"), {"train": {k: v[:1797] for k, v in columns.items()}})
        fit("digits.recipe:convnet", dataset=dataset, model=model, epochs=1)
        table = pa.table({"id": range(asked.rows), "image": list(columns["image"].reshape(asked.rows, -1))})
        for part in range(CORES):
            pq.write_table(table.slice(part * asked.rows // CORES, asked.rows // CORES), f"{directory}/{part}.parquet")
        source = spark.read.parquet(f"{directory}/*.parquet")
        table = table.append_column("label", pa.array(columns["label"]))
        spark.createDataFrame(table).repartition(CORES).write.format("trainyard").mode("overwrite").save(
            f"{directory}/all"
        )
        labeled = spark.read.format("trainyard").load(f"{directory}/all")
        found: dict[str, list[float]] = {name: [] for name in ("ours", "torch", "udf", "one", "ten")}
        with arrow_batches.limit_batch_rows(10_000, spark):
            for number in range(asked.runs + 1):
                taken = {
                    "ours": seconds(done(predict(source, model, ["id"]))),
                    "torch": by_torch(model, columns),
                    "udf": seconds(done(by_udf(source, model))),
                    "one": seconds(lambda: evaluate(labeled, [model], ONE)),
                    "ten": seconds(lambda: evaluate(labeled, [model], TEN)),
                }
                for name, value in taken.items() if number else ():  # the first run warms up
                    found[name].append(value)
    spark.stop()

    def ratio(over: str, under: str) -> float:
        return statistics.median(a / b for a, b in zip(found[over], found[under], strict=True))

    for name, values in found.items():
        print(f"{name}: {asked.rows / statistics.median(values):,.0f} rows/s")
    print(f"predictions / torch alone: {ratio('torch', 'ours'):.2f} (goal 0.8)")
    print(f"predictions / predict_batch_udf: {ratio('udf', 'ours'):.2f} (goal 1.5)")
    print(f"ten metrics cost {ratio('ten', 'one'):.2f} of one (goal 1.2)")


if __name__ == "__main__":
    main()
