"""What a report says of a training: the recipe, the data, the options and the workers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plugins.results import output
from trainyard.report.settings import describe_training, name_members
from trainyard.schemas.results import ModelResult
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainOptions, TrainSpec

KEY = TaskKey(dag_id="toy", run_id="r1", task_id="train", directory="file:///s/runs/toy/r1")


def spec(**fields: Any) -> TrainSpec:
    given = {"recipe": "toy.recipe:network", "dataset": "file:///s/toy/dataset", "model": "file:///s/toy/model"}
    return TrainSpec(**{"task_key": KEY} | given | fields)


def describe(result: ModelResult | None = None, **fields: Any) -> dict[str, str]:
    return dict(describe_training("file:///s", spec(**fields), result))


def test_a_training_is_described_by_what_decides_its_result() -> None:
    trained = output(
        "train", optimizers=["SGD(lr=0.1, momentum=0.9)", "StepLR"], parameters=25450, rows=1437,
        device="NVIDIA H200", software="Python 3.12.3, torch 2.15.0",
    )  # fmt: skip
    options = TrainOptions(epochs=3, precision="bfloat16", clip_norm=1.0)
    described = describe_training(
        "file:///s", spec(recipe_params={"width": 8}, options=options, strategy="averaging", workers=(1, 4)),
        ModelResult(**trained),
    )  # fmt: skip
    assert described == [
        ("Recipe", "toy.recipe:network(width=8)"),
        ("Optimizer", "SGD(lr=0.1, momentum=0.9), StepLR"),
        ("Options", "epochs=3, batch_size=64, seed=0, precision='bfloat16', clip_norm=1.0"),
        ("Data", "toy/dataset@1, 1,437 rows an epoch"),
        ("Workers", "2 workers, averaging"),
        ("Ran on", "NVIDIA H200, Python 3.12.3, torch 2.15.0"),
        ("Model", "25,450 parameters"),
    ]


def test_a_training_that_has_not_succeeded_is_described_by_what_it_was_asked_to_do() -> None:
    assert describe(workers=(1, 4), dataset_version=3) == {
        "Recipe": "toy.recipe:network", "Options": "epochs=10, batch_size=64, seed=0", "Data": "toy/dataset@3",
        "Workers": "1–4 workers, allreduce",
    }  # fmt: skip


def test_the_trainings_of_a_sweep_are_named_by_what_differs() -> None:
    rates = (0.1, 0.01)
    sweep = {
        f"train@{index}": spec(
            task_key=KEY.model_copy(update={"map_index": index}), recipe_params={"rate": rate, "width": 8},
            options=TrainOptions(batch_size=32 * (index + 1)), model=f"file:///s/toy/model/{index}",
        )
        for index, rate in enumerate(rates)
    }  # fmt: skip
    assert name_members("file:///s", sweep | {"teach": spec(recipe="toy.teacher:network")}) == {
        "train@0": "batch_size=32, rate=0.1",
        "train@1": "batch_size=64, rate=0.01",
    }


@pytest.mark.parametrize(
    ("varied", "names"),
    [
        ([{"dataset": "file:///s/a"}, {"dataset": "file:///s/b"}], ["data=a", "data=b"]),
        ([{"dataset_version": 1}, {"dataset_version": 2}], ["data=toy/dataset@1", "data=toy/dataset@2"]),
        ([{"recipe_params": {"epochs": 3}}, {"recipe_params": {"epochs": 4}}],
         ["recipe_params.epochs=3", "recipe_params.epochs=4"]),
        ([{"recipe_params": {"columns": ["c"] * 2000}}, {"recipe_params": {"columns": ["d"] * 2000}}],
         ["columns=['c', 'c', 'c', 'c', 'c', 'c', 'c', 'c', 'c', '…",
          "columns=['d', 'd', 'd', 'd', 'd', 'd', 'd', 'd', 'd', '…"]),
    ],
)  # fmt: skip
def test_whatever_differs_is_named_in_few_characters(varied: list[dict[str, Any]], names: list[str]) -> None:
    sweep = {
        f"train@{index}": spec(task_key=KEY.model_copy(update={"map_index": index}), **fields)
        for index, fields in enumerate(varied)
    }
    assert list(name_members("file:///s", sweep).values()) == names


def test_a_parameter_that_one_training_of_a_sweep_has_is_the_default_of_the_others() -> None:
    keys = [KEY.model_copy(update={"map_index": index}) for index in range(2)]
    sweep = {"train@0": spec(task_key=keys[0]), "train@1": spec(task_key=keys[1], recipe_params={"width": 8})}
    assert name_members("file:///s", sweep) == {"train@0": "width=default", "train@1": "width=8"}


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"recipe": None, "loop": "toy.loop:train", "loop_params": {"rate": 0.1}}, "Loop", "toy.loop:train(rate=0.1)"),
        ({"strategy": {"name": "averaging", "frequency": 9}}, "Workers", "1 worker, averaging(frequency=9)"),
        ({"strategy": {"name": "my.votes:Vote", "params": {"scale": 2}}}, "Workers",
         "1 worker, my.votes:Vote(params={'scale': 2})"),
        ({"start_from": "file:///s/toy/champion@1a2b"}, "Begins with", "toy/champion@1a2b"),
        ({"dataset_since": "file:///s/toy/champion@1a2b"}, "Data",
         "toy/dataset, what was added since toy/champion@1a2b"),
        ({"dataset_since": 0}, "Data", "toy/dataset, what was added since version 0"),
        ({"mix": [{"dataset": "hdfs:///other", "share": 0.25, "version": 2}]}, "Data",
         "toy/dataset, 0.25 of hdfs:///other@2"),
    ],
)  # fmt: skip
def test_what_a_training_may_have_besides(fields: dict[str, Any], name: str, value: str) -> None:
    assert describe(**fields)[name] == value
