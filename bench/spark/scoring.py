"""Compare predictions on Spark with torch alone and with predict_batch_udf, and ten metrics with one.

    PYTHONPATH=plugins:.:dags python bench/spark/scoring.py [--rows 50000] [--runs 3]

The rows are scikit-learn's digits, repeated, as Parquet and as a dataset; the network is that of the digits example;
there are two cores. "Torch" has the rows in memory as one tensor, two threads, and the best of four batch sizes.
Variants alternate; ratios are medians.
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
from trainyard.etl.datasource import source as datasource
from trainyard.etl.evaluation.evaluate import evaluate
from trainyard.etl.jobs.exporting import sizes
from trainyard.etl.jobs.predict import predict
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.artifacts.trained_model import load_model

CORES = 2
ONE = ["accuracy"]
TEN = [
    "accuracy", "precision", "recall", "f1", "auroc", "average_precision", "log_loss", "calibration_error",
    "confusion_matrix", "tests.etl.metrics.own:second",
]  # fmt: skip


def start_session() -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.memory", "4g").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    datasource.register(spark)
    return spark


def make_rows(count: int) -> datasets.Columns:
    digits = load_digits()
    numbers = np.arange(count) % len(digits.target)
    images = (digits.images[numbers, None] / 16).astype(np.float32)
    return {"image": images, "label": digits.target[numbers].astype(np.int64)}


def measure(function: Callable[[], Any]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def measure_torch(model: str, columns: datasets.Columns) -> float:
    """Return the seconds of torch alone, with the best of four batch sizes."""
    torch.set_num_threads(CORES)
    loaded = load_model(model)
    images = torch.from_numpy(np.asarray(columns["image"], np.float32))

    def apply(size: int) -> None:
        for part in images.split(size):
            loaded.predict({"image": part})

    return min(measure(lambda size=size: apply(size)) for size in (64, 256, 1024, 4096))


def apply_udf(frame: Any, model: str) -> Any:
    from pyspark.ml.functions import predict_batch_udf
    from pyspark.sql.types import FloatType, LongType, StructField, StructType

    def build() -> Any:
        torch.set_num_threads(1)
        loaded = load_model(model)
        return lambda image: loaded.predict({"image": image})

    kind = StructType([StructField("digit", LongType()), StructField("probability", FloatType())])
    udf = predict_batch_udf(build, return_type=kind, batch_size=1000, input_tensor_shapes=[[1, 8, 8]])
    return frame.select("id", udf("image").alias("p")).select("id", "p.*")


def write_nowhere(frame: Any) -> Callable[[], None]:
    return lambda: frame.write.format("noop").mode("overwrite").save()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    spark, columns = start_session(), make_rows(args.rows)
    with tempfile.TemporaryDirectory() as directory:
        model = str(Path(directory, "model"))
        dataset = datasets.write(Path(directory, "few"), {"train": {k: v[:1797] for k, v in columns.items()}})
        fit("digits.recipe:convnet", dataset=dataset, model=model, epochs=1)
        table = pa.table({"id": range(args.rows), "image": list(columns["image"].reshape(args.rows, -1))})
        for part in range(CORES):
            pq.write_table(table.slice(part * args.rows // CORES, args.rows // CORES), f"{directory}/{part}.parquet")
        source = spark.read.parquet(f"{directory}/*.parquet")
        table = table.append_column("label", pa.array(columns["label"]))
        spark.createDataFrame(table).repartition(CORES).write.format("trainyard").mode("overwrite").save(
            f"{directory}/all"
        )
        labeled = spark.read.format("trainyard").load(f"{directory}/all")
        times: dict[str, list[float]] = {name: [] for name in ("ours", "torch", "udf", "one", "ten")}
        with sizes.limit_batch_rows(10_000, spark):
            for number in range(args.runs + 1):
                seconds = {
                    "ours": measure(write_nowhere(predict(source, model, ["id"]))),
                    "torch": measure_torch(model, columns),
                    "udf": measure(write_nowhere(apply_udf(source, model))),
                    "one": measure(lambda: evaluate(labeled, [model], ONE)),
                    "ten": measure(lambda: evaluate(labeled, [model], TEN)),
                }
                for name, value in seconds.items() if number else ():  # the first run warms up
                    times[name].append(value)
    spark.stop()

    def compute_ratio(over: str, under: str) -> float:
        return statistics.median(a / b for a, b in zip(times[over], times[under], strict=True))

    for name, values in times.items():
        print(f"{name}: {args.rows / statistics.median(values):,.0f} rows/s")
    print(f"predictions / torch alone: {compute_ratio('torch', 'ours'):.2f} (goal 0.8)")
    print(f"predictions / predict_batch_udf: {compute_ratio('udf', 'ours'):.2f} (goal 1.5)")
    print(f"ten metrics cost {compute_ratio('ten', 'one'):.2f} of one (goal 1.2)")


if __name__ == "__main__":
    main()
