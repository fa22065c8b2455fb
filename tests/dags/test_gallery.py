"""The examples of the gallery run by `airflow dags test`, and learn more than a trivial baseline.

The gallery's page runs `ranking`, and `test_examples.py` the digits.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from trainyard.schemas import model_artifact
from trainyard.schemas.datasets import manifest
from trainyard.schemas.runs import run_record
from trainyard.trainer import Dataset

pytestmark = [pytest.mark.full, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]
SWEEP = 'penguins_sweep --conf {"learning_rates":[0.0001,0.02]}'
LANES = [
    [
        "daily 2026-01-01",
        "daily_model 2026-01-01",
        "daily 2026-01-02",
        "daily_model 2026-01-02",
        "timeseries",
        "prices",
        "penguins_islands",
    ],
    ["images", "sequences", "transformer", "gan", "penguins", SWEEP, "penguins_ensemble"],
]
"""The runs of each Airflow, one after the other. Two runs of one Airflow at once would write to one SQLite file."""
PROGRAM = """
import sys
from airflow.__main__ import main

for run in sys.argv[1:]:
    sys.argv = ["airflow", "dags", "test", *run.split()]
    main()
"""
"""Calls Airflow's command for several runs, so that it is imported once."""

Outputs = dict[str, dict[str, Any]]
"""The result of each task of a run."""


def run_lane(home: Path, lane: Sequence[str]) -> dict[str, Outputs]:
    """Run examples, perhaps of a date; fail the test if a run fails."""
    script = '. stack/local/env.sh && exec python -c "$@"'
    environment = os.environ | {"TRAINYARD_HOME": str(home), "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags")}
    process = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script, "bash", PROGRAM, *lane],
        cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stdout[-7000:]
    directories = {path: sorted(path.iterdir()) for path in (home / "storage/runs").iterdir()}  # begin with the time
    runs = [(run, directories[home / "storage/runs" / run.split()[0]].pop(0)) for run in lane]
    return {
        run: {record.task_key.task: record.output for record in run_record.read_run(str(directory))}
        for run, directory in runs
    }


Run = Callable[[str], tuple[Path, Outputs]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run all examples, two at a time; return a function that returns the storage and the outputs of one."""
    homes = [tmp_path_factory.mktemp("gallery") for _ in LANES]
    with ThreadPoolExecutor(len(LANES)) as pool:
        futures = [pool.submit(run_lane, home, lane) for home, lane in zip(homes, LANES, strict=True)]

        def find(run: str) -> tuple[Path, Outputs]:
            number = next(number for number, lane in enumerate(LANES) if run in lane)
            return homes[number] / "storage", futures[number].result()[run]

        yield find


def read_rows(dataset: Path, split: str, *columns: str) -> dict[str, torch.Tensor]:
    """Return columns of a split."""
    [batch] = Dataset(str(dataset), split, columns, batch_size=100_000, shuffle=False)
    return batch


def test_sentences_are_classified_by_their_words(run: Run) -> None:
    storage, outputs = run("sequences")
    lengths = read_rows(storage / "sequences/dataset", "test", "words")["words_mask"].sum(1)
    assert lengths.min() < lengths.max(), "rows differ in length"
    assert outputs["evaluate"]["metrics"]["accuracy"] > 0.6, "0.3 of the sentences are of the longest chapter"


def test_a_transformer_predicts_characters_better_than_their_frequencies(run: Run) -> None:
    storage, outputs = run("transformer")
    following = read_rows(storage / "transformer/dataset", "test", "next")["next"]
    counts = np.array(list(Counter(following.flatten().tolist()).values()))
    probabilities = counts / counts.sum()
    by_frequency = np.exp(-(probabilities * np.log(probabilities)).sum())
    assert outputs["evaluate"]["metrics"]["transformer.recipe:perplexity"] < 0.7 * by_frequency


def test_files_are_decoded_by_the_workers_and_classified(run: Run) -> None:
    storage, outputs = run("images")
    types = {column.name: column.type for column in manifest.read_current(str(storage / "images/dataset")).columns}
    assert types["image"] == "binary"
    assert outputs["evaluate"]["rows"] > 100
    assert outputs["evaluate"]["metrics"]["accuracy"] > 0.8, "half of the tiles are of one photograph"


def test_the_future_is_forecast_from_the_past(run: Run) -> None:
    storage, outputs = run("timeseries")
    years = {
        split: read_rows(storage / "timeseries/dataset", split, "year")["year"]
        for split in ("train", "validation", "test")
    }
    series = pd.read_csv(ROOT / "dags/timeseries/sunspots.csv", index_col="year")["sunspots"]
    persistence = series.diff().abs()[years["test"].tolist()].mean()
    assert outputs["evaluate"]["metrics"]["mae"] < 0.8 * persistence


def test_prices_of_later_months_follow_from_two_tables(run: Run) -> None:
    _, outputs = run("prices")
    computers = pd.read_csv(ROOT / "dags/prices/computers.csv")
    assert outputs["export"]["splits"] == {
        "train": (computers.month < "1995-04").sum(),
        "validation": computers.month.between("1995-04", "1995-06").sum(),
        "test": (computers.month >= "1995-07").sum(),
    }
    assert set(outputs["export"]["unseen"]) == {"brand", "cd", "speakers", "screen"}
    error = (computers[computers.month >= "1995-07"].price - computers[computers.month < "1995-04"].price.mean()).abs()
    assert outputs["evaluate"]["metrics"]["mae"] < 0.6 * error.mean(), "the mean price is a trivial prediction"
    assert outputs["evaluate"]["metrics"]["r2"] > 0.6


def test_a_generator_draws_digits_like_the_real_ones(run: Run) -> None:
    from gan.networks import LATENT, frechet_distance, generator

    storage, outputs = run("gan")
    assert outputs["train"] == {"workers": 2, "restarts": 0}
    real = read_rows(storage / "gan/dataset", "train", "image")["image"].flatten(1) / 8 - 1
    torch.manual_seed(0)
    network = generator().eval()
    network.load_state_dict(torch.load(storage / "gan/generator.pt"))
    with torch.no_grad():
        drawn = network(torch.randn(2000, LATENT))
    mean = real.mean(0).expand_as(real)
    assert frechet_distance(real, drawn) < 0.7 * frechet_distance(real, mean), "the mean image is a trivial drawing"


def test_the_mass_of_penguins_is_predicted(run: Run) -> None:
    storage, outputs = run("penguins")
    assert outputs["export"]["rows"] == 342, "two of the 344 have no body mass"
    assert outputs["evaluate"]["metrics"]["mae"] < 0.4, "kilograms; the masses differ by 0.8 (std)"
    assert len(pd.read_parquet(storage / "penguins/predictions")) == 342


def test_the_best_of_a_sweep_becomes_the_champion(run: Run) -> None:
    storage, outputs = run(SWEEP)
    slow, quick = (outputs[f"train@{number}"] for number in (0, 1))
    assert slow["metrics"]["mae"] > quick["metrics"]["mae"]
    champion = model_artifact.read_current(str(storage / "penguins/champion"))
    assert champion.weights_sha256 == quick["weights_sha256"]
    assert champion.recipe_params == {"learning_rate": 0.02}


def test_an_ensemble_of_a_mapped_training_is_evaluated_beside_its_members(run: Run) -> None:
    storage, outputs = run("penguins_ensemble")
    members = {outputs[f"train@{number}"]["weights_sha256"] for number in range(3)}
    ensemble = model_artifact.read_current(str(storage / "penguins_ensemble/mean")).ensemble
    assert ensemble is not None and {member.artifact.weights_sha256 for member in ensemble.members} == members
    errors = [baseline["metrics"]["mae"] for baseline in outputs["evaluate"]["baselines"]]
    assert len(errors) == 3 and outputs["evaluate"]["metrics"]["mae"] < max(errors)


def test_each_island_has_a_dataset_and_a_model(run: Run) -> None:
    _, outputs = run("penguins_islands")
    rows = [outputs[f"of_island.export@{number}"]["rows"] for number in range(2)]
    data = pd.read_csv(ROOT / "dags/penguins/penguins.csv").dropna(subset=["body_mass_g"])
    assert rows == [(data["island"] == island).sum() for island in ("Biscoe", "Dream")]
    models = [outputs[f"of_island.train@{number}"]["uri"] for number in range(2)]
    assert len(set(models)) == 2 and all(model_artifact.exists(model) for model in models)


def test_each_day_adds_a_partition_and_the_model_learns_on(run: Run) -> None:
    storage, first = run("daily_model 2026-01-01")
    _, second = run("daily_model 2026-01-02")
    dataset = manifest.read_current(str(storage / "daily/dataset"))
    model, champion = (model_artifact.read_current(str(storage / f"daily/{name}")) for name in ("model", "champion"))
    assert sorted(dataset.partitions) == ["2026-01-01", "2026-01-02"]
    assert [outputs["train"]["dataset_version"] for outputs in (first, second)] == [1, 2]
    started = first["predict"]["weights_sha256"][:16]
    assert (model.start_from, second["train"]["dataset_version"]) == (f"file://{storage}/daily/champion@{started}", 2)
    assert second["evaluate"]["dataset_version"] == 2, "what the model was trained on"
    assert second["evaluate"]["metrics"]["accuracy"] > 0.7, "a tenth of the digits are of one class"
    assert second["predict"]["weights_sha256"] == champion.weights_sha256
    predictions = pd.read_parquet(storage / "daily/predictions")
    assert predictions["day"].value_counts().to_dict() == {"2026-01-01": 359, "2026-01-02": 359}
