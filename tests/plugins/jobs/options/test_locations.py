"""Results of other tasks are options, whatever form Airflow resolves them to, and whenever it does so."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, task, task_group
from airflow.sdk.definitions.xcom_arg import ResolveMixin

from tests.plugins.contexts import MappedResults
from trainyard.errors import TrainyardError
from trainyard.hooks.trainyard import Settings
from trainyard.jobs.assets import asset
from trainyard.jobs.operator import JobOperator
from trainyard.jobs.options.locations import explain_missing_part, explain_shared_output
from trainyard.operators import (
    EvaluateOperator,
    ExportOperator,
    FeaturizeOperator,
    Memory,
    Placement,
    PredictOperator,
    ScriptOperator,
    TrainOperator,
)
from trainyard.schemas.specs.job import JobSpec
from trainyard.schemas.specs.strategies import OwnStrategy
from trainyard.schemas.specs.task_key import TaskKey

RESULT = {"uri": "file:///s/toy/result", "version": 3}
MODEL = {"uri": "file:///s/toy/model", "weights_sha256": "a" * 64}
OTHER = {"uri": "file:///s/toy/other", "weights_sha256": "b" * 64}
EXPORT = {"prepare": "toy.prepare:rows", "source": "/in", "dataset": "toy/dataset"}
TRAIN = {"recipe": "toy.recipe:network", "dataset": "toy/dataset", "model": "toy/model"}
EVALUATE = {"model": "toy/model", "dataset": "toy/dataset", "metrics": ["accuracy"]}
PREDICT = {"model": "toy/model", "source": "/in", "keys": ["id"], "output": "toy/out"}


class Later(ResolveMixin):  # type: ignore[misc]
    """A value that Airflow resolves when the task runs."""

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def iter_references(self) -> Iterable[Any]:
        return ()

    def resolve(self, context: Any) -> Any:
        return self.value


@pytest.fixture
def dag(dag_file: Path) -> DAG:
    dag = DAG("toy", schedule=None, params={"source": "/in", "epochs": 3})
    dag.fileloc = str(dag_file)
    return dag


def spec(operator: JobOperator) -> Any:
    """Return the spec of an operator, once Airflow has rendered its options."""
    operator.render_template_fields({"params": {}})
    return build_spec(operator)


def build_spec(operator: JobOperator) -> JobSpec:
    key = TaskKey(dag_id="toy", run_id="r", task_id="t", directory="memory://s/runs/toy/r")
    return operator.build_spec(key, "memory://s")


@pytest.mark.parametrize(
    ("operator", "options", "field", "value"),
    [
        (TrainOperator, TRAIN | {"dataset": RESULT}, "dataset", RESULT["uri"]),
        (TrainOperator, TRAIN | {"dataset": RESULT}, "dataset_version", 3),
        (TrainOperator, TRAIN | {"recipe_params": {"teacher": RESULT}}, "recipe_params", {"teacher": RESULT["uri"]}),
        (
            TrainOperator,
            TRAIN | {"strategy": {"name": "toy.recipe:network", "params": {"table": RESULT}}},
            "strategy",
            OwnStrategy(name="toy.recipe:network", params={"table": RESULT["uri"]}),
        ),
        (EvaluateOperator, EVALUATE | {"model": RESULT}, "model", RESULT["uri"]),
        (PredictOperator, PREDICT | {"model": RESULT}, "model", RESULT["uri"]),
        (FeaturizeOperator, EXPORT | {"model": RESULT, "layer": "pool"}, "model", RESULT["uri"]),
        (ScriptOperator, {"script": "toy.recipe", "arguments": ["--data", RESULT]}, "arguments",
         ("--data", RESULT["uri"])),
    ],
)  # fmt: skip
def test_the_constructor_of_a_mapped_task_takes_the_results_of_other_tasks(
    dag: DAG, operator: type[JobOperator], options: dict[str, Any], field: str, value: Any
) -> None:
    """Airflow constructs each operator of a mapped task when it runs, with what its options were resolved to."""
    assert getattr(build_spec(operator(task_id="t", dag=dag, **options)), field) == value


def test_the_constructor_of_a_mapped_task_takes_results_in_baselines_and_mix(dag: DAG) -> None:
    EvaluateOperator(task_id="e", dag=dag, **EVALUATE, baselines=[RESULT])
    (mixed,) = build_spec(TrainOperator(task_id="t", dag=dag, **TRAIN, mix=[{"dataset": RESULT, "share": 0.5}])).mix  # type: ignore[attr-defined]
    assert (mixed.dataset, mixed.version) == (RESULT["uri"], 3)


def test_a_model_that_does_not_exist_is_refused_before_anything_is_submitted(
    dag: DAG, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
    operator = EvaluateOperator(task_id="t", dag=dag, **EVALUATE)
    with pytest.raises(TrainyardError, match=r"^EvaluateOperator 't': file:///.*/toy/model is not a model"):
        operator.plan(
            TaskKey(dag_id="d", run_id="r", task_id="t", directory=str(tmp_path)), Settings(tmp_path.as_uri())
        )


def test_a_dataset_that_a_task_did_not_return_is_not_replaced_by_that_of_the_model(dag: DAG) -> None:
    evaluate = EvaluateOperator(task_id="t", dag=dag, **EVALUATE | {"dataset": Later(None)})
    with pytest.raises(TrainyardError, match=r"'t': dataset=None: the task that should return it was skipped"):
        spec(evaluate)


NAMED = {"recipe": "toy.recipe:network", "dataset": "toy/dataset"}


def test_an_output_without_a_name_has_that_of_its_task(dag: DAG) -> None:
    train = TrainOperator(task_id="train", dag=dag, **NAMED)
    assert train.model == "toy/train" and train.outlets == [asset("toy/train")]
    assert build_spec(train).model == "memory://s/toy/train"  # type: ignore[attr-defined]


def render(operator: JobOperator, dag: DAG, map_index: int = -1) -> str:
    """Return the output as Airflow renders it in a task with this index."""
    context = {"dag": dag, "task": operator, "ti": SimpleNamespace(map_index=map_index)}
    return str(operator.render_template(operator.output_name, context))


def test_each_task_of_a_mapped_one_has_an_output_of_its_own(dag: DAG) -> None:
    mapped = TrainOperator.partial(task_id="train", dag=dag, **NAMED).expand(epochs=[1, 2])
    operator = mapped.unmap({"epochs": 2})
    assert operator.outlets == [] and render(operator, dag, map_index=1) == "toy/train/1"


def test_a_mapped_task_runs_with_the_output_of_its_own_that_it_has_by_default(dag: DAG) -> None:
    """It was refused as one that all tasks write, because the name has no template once it is rendered."""
    mapped = TrainOperator.partial(task_id="train", dag=dag, **NAMED).expand(epochs=[1, 2])
    operator = mapped.unmap({"epochs": 2})
    operator.model = render(operator, dag, map_index=1)
    key = TaskKey(dag_id="toy", run_id="r", task_id="train", map_index=1, directory="memory://s/runs/toy/r")
    assert operator.build_spec(key, "memory://s").model == "memory://s/toy/train/1"


def test_tasks_that_write_partitions_write_them_to_one_dataset(dag: DAG) -> None:
    options = {"prepare": "toy.prepare:rows", "source": "/in"}
    mapped = ExportOperator.partial(task_id="export", dag=dag, **options).expand(partition=["a", "b"])
    assert render(mapped.unmap({"partition": "b"}), dag, map_index=1) == "toy/export"


def test_mapped_tasks_that_write_one_partition_are_refused(dag: DAG) -> None:
    options = {"prepare": "toy.prepare:rows", "source": "/in", "partition": "{{ ds }}"}
    mapped = ExportOperator.partial(task_id="export", dag=dag, **options).expand(seed=[1, 2])
    operator = mapped.unmap({"seed": 1})
    operator.dataset, operator.partition = "toy/export", "2026-01-01"
    key = TaskKey(dag_id="toy", run_id="r", task_id="export", map_index=0, directory="memory://s/runs/toy/r")
    with pytest.raises(TrainyardError, match=r"all tasks of this mapped one write dataset='toy/export'"):
        operator.build_spec(key, "memory://s")


@pytest.mark.parametrize(("partition", "name"), [("{{ ds }}", "toy/group.e/1"), ("{{ ti.map_index }}", "toy/group.e")])
def test_tasks_of_a_mapped_group_share_a_dataset_only_for_partitions_of_their_own(
    dag: DAG, partition: str, name: str
) -> None:
    with dag:

        @task_group
        def group(seed: int) -> None:
            ExportOperator(task_id="e", prepare="toy.prepare:rows", source="/in", partition=partition, seed=seed)

        group.expand(seed=[1, 2])
    assert render(dag.get_task("group.e"), dag, map_index=1) == name


def test_a_task_of_a_mapped_group_has_an_output_of_its_own(dag: DAG) -> None:
    with dag:

        @task_group
        def group(epochs: int) -> None:
            TrainOperator(task_id="train", **NAMED, epochs=epochs)

        group.expand(epochs=[1, 2])
    assert render(dag.get_task("group.train"), dag, map_index=1) == "toy/group.train/1"


def test_a_task_that_is_added_to_its_dag_later_has_the_name_of_both(dag: DAG) -> None:
    train = TrainOperator(task_id="train", **NAMED)
    dag.add_task(train)
    assert render(train, dag) == "toy/train"


def test_each_key_of_a_result_is_a_result(dag: DAG) -> None:
    train = TrainOperator(task_id="train", dag=dag, **NAMED)
    mapped = TrainOperator.partial(task_id="mapped", dag=dag, **NAMED).expand(epochs=[1, 2])
    assert train.multiple_outputs and mapped.unmap({"epochs": 2}).multiple_outputs
    assert not TrainOperator(task_id="whole", dag=dag, **NAMED, multiple_outputs=False).multiple_outputs


@pytest.mark.parametrize(
    ("path", "format"),
    [("/in", "parquet"), ("/in/x.parquet", "parquet"), ("/in/x.csv", "csv"), ("/in/x.CSV.gz", "csv"),
     ("/in/*.jsonl", "json"), ("/in/x.orc/", "orc")],
)  # fmt: skip
def test_the_format_of_a_source_is_that_of_its_ending(dag: DAG, path: str, format: str) -> None:
    export = ExportOperator(task_id="e", dag=dag, **EXPORT | {"source": path}, options={"header": True, "n": 2})
    source = build_spec(export).source  # type: ignore[attr-defined]
    assert (source.format, source.options) == (format, {"header": "true", "n": "2"})


def test_each_of_several_sources_is_a_path_a_dict_or_the_result_of_another_task(dag: DAG) -> None:
    fields = {name: value for name, value in EXPORT.items() if name != "source"}
    predictions = {"uri": "file:///s/toy/scores", "rows": 3, "version": None}
    sources = {
        "orders": {"table": "sales.orders"}, "customers": "customers.csv", "before": RESULT, "scores": predictions,
        "events": {"format": "json", "path": "events"},
    }  # fmt: skip
    read = build_spec(ExportOperator(task_id="t", dag=dag, **fields, sources=sources)).all_sources  # type: ignore[attr-defined]
    assert {name: (source.format, source.path) for name, source in read.items()} == {
        "orders": ("table", None),
        "customers": ("csv", "memory://s/customers.csv"),
        "before": ("trainyard", RESULT["uri"]),
        "scores": ("parquet", predictions["uri"]),
        "events": ("json", "memory://s/events"),
    }
    assert read["before"].options == {"version": "3"}


def test_predictions_that_are_a_table_are_a_table_as_a_source(dag: DAG) -> None:
    result = {"uri": "sales.scores", "columns": ["id", "score"]}
    source = build_spec(ExportOperator(task_id="t", dag=dag, **EXPORT | {"source": result})).source  # type: ignore[attr-defined]
    assert (source.format, source.table, source.path) == ("table", "sales.scores", None)


LATER = "{{ params.later }}"


@pytest.mark.parametrize(
    "options",
    [
        {"source": "x", "options": LATER}, {"source": {"path": "x", "options": LATER}}, {"source": LATER},
        {"source": "{{ 'hdfs://x/y' }}"}, {"sources": LATER}, {"sources": Later()}, {"sources": {"a": Later()}},
        {"sources": {"a": {"path": "x", "options": LATER}, "b": "y.csv"}}, {"source": Later()},
        {"source": "x", "format": LATER},
    ],
)  # fmt: skip
def test_a_source_may_be_known_when_the_task_runs(dag: DAG, options: dict[str, Any]) -> None:
    fields = {name: value for name, value in EXPORT.items() if name != "source"}
    ExportOperator(task_id="e", dag=dag, **fields, **options)
    predict = {name: value for name, value in PREDICT.items() if name != "source"}
    PredictOperator(task_id="p", dag=dag, **predict, **options, prepare=LATER)


def test_what_is_wrong_beside_a_template_is_refused_while_the_dag_is_parsed(dag: DAG) -> None:
    fields = {name: value for name, value in EXPORT.items() if name != "source"}
    with pytest.raises(TrainyardError, match=r"sources\.b.*write a name without colons"):
        ExportOperator(task_id="e", dag=dag, **fields, sources={"a": {"path": "x", "options": LATER}, "b": "../y"})


def test_the_result_of_an_export_is_a_source_without_its_format(dag: DAG) -> None:
    source = build_spec(ExportOperator(task_id="t", dag=dag, **EXPORT | {"source": RESULT})).source  # type: ignore[attr-defined]
    assert (source.format, source.path, source.options) == ("trainyard", RESULT["uri"], {"version": "3"})


def test_an_output_inside_one_of_several_sources_is_refused(dag: DAG) -> None:
    fields = {name: value for name, value in EXPORT.items() if name != "source"}
    with pytest.raises(TrainyardError, match=r"dataset='toy/dataset'.* it is the source 'toy', contains it"):
        ExportOperator(task_id="t", dag=dag, **fields, sources={"a": "other", "b": "toy"})


@pytest.mark.parametrize(
    "options", [{"source": RESULT, "format": "trainyard"}, {"source": {"format": "trainyard", "path": RESULT}}]
)
@pytest.mark.parametrize(("operator", "known"), [(ExportOperator, EXPORT), (PredictOperator, PREDICT)])
def test_a_dataset_is_read_as_a_source_in_the_version_that_the_export_wrote(
    dag: DAG, operator: type[JobOperator], known: dict[str, Any], options: dict[str, Any]
) -> None:
    source = build_spec(operator(task_id="t", dag=dag, **known | options)).source  # type: ignore[attr-defined]
    assert (source.path, source.options) == (RESULT["uri"], {"version": "3"})


def test_a_version_that_the_user_chose_is_read(dag: DAG) -> None:
    options = {"source": RESULT, "format": "trainyard", "options": {"version": "1"}}
    source = build_spec(PredictOperator(task_id="t", dag=dag, **PREDICT | options)).source  # type: ignore[attr-defined]
    assert source.options == {"version": "1"}


@pytest.mark.parametrize("operator", [ExportOperator, PredictOperator])
def test_the_result_of_another_task_is_the_path_of_a_source(dag: DAG, operator: type[JobOperator]) -> None:
    options = EXPORT if operator is ExportOperator else PREDICT
    source = {"format": "parquet", "path": Later(RESULT)}
    assert spec(operator(task_id="t", dag=dag, **options | {"source": source})).source.path == RESULT["uri"]


def test_the_argument_of_a_mapped_group_is_any_option(dag: DAG) -> None:
    with dag:

        @task_group
        def group(name: Any) -> None:
            export = ExportOperator(task_id="export", **EXPORT | {"dataset": name, "source": name, "shards": name})
            train = TrainOperator(
                task_id="train", **TRAIN | {"dataset": export.output}, recipe_params={"width": name}, workers=name,
                memory=Memory(heap=name), placement=Placement(queue=name),
            )  # fmt: skip
            EvaluateOperator(task_id="evaluate", **EVALUATE | {"model": train.output}, baselines=name)
            PredictOperator(task_id="predict", **PREDICT | {"source": name, "output": name})

        group.expand(name=["a", "b"])
    assert len(dag.tasks) == 4


def test_a_param_of_the_dag_is_any_option(dag: DAG) -> None:
    ExportOperator(task_id="export", dag=dag, **EXPORT | {"source": dag.param("source")})
    TrainOperator(task_id="train", dag=dag, **TRAIN, epochs=dag.param("epochs"))


@pytest.mark.parametrize(
    "option",
    ["memory", "driver_memory", "placement", "grow_memory_to", "preflight", "conf", "conn_id", "mix", "recipe_params"],
)
def test_the_result_of_another_task_is_any_option(dag: DAG, option: str) -> None:
    with dag:

        @task
        def choose() -> Any:
            return None

        TrainOperator(task_id="train", **TRAIN, **{option: choose()})


def test_the_results_of_a_mapped_task_are_a_list(dag: DAG) -> None:
    results = Later(MappedResults(RESULT, RESULT))
    script = ScriptOperator(task_id="script", dag=dag, script="toy.recipe", arguments=results)
    assert spec(script).arguments == (RESULT["uri"], RESULT["uri"])
    train = TrainOperator(task_id="train", dag=dag, **TRAIN, recipe_params={"teachers": results}, workers=results)
    train.render_template_fields({})
    assert (train.recipe_params, train.workers) == ({"teachers": [RESULT, RESULT]}, [RESULT, RESULT])
    mixed = TrainOperator(
        task_id="mixed", dag=dag, **TRAIN, mix=Later(MappedResults({"dataset": RESULT, "share": 0.5}))
    )
    assert spec(mixed).mix[0].version == 3
    export = ExportOperator(
        task_id="export", dag=dag, **EXPORT, prepare_params={"names": Later(MappedResults("a", MappedResults("b")))}
    )
    assert spec(export).prepare_params == {"names": ["a", ["b"]]}


def test_the_models_of_a_mapped_training_are_evaluated_or_baselines(dag: DAG) -> None:
    none = {"uri": "memory://s/none"}
    evaluate = EvaluateOperator(task_id="e", dag=dag, **EVALUATE, baselines=Later(MappedResults(none)))
    assert spec(evaluate).baselines == ()
    several = {**EVALUATE, "model": None, "models": [Later(MappedResults(MODEL, OTHER)), "toy/model"]}
    evaluate = EvaluateOperator(task_id="several", dag=dag, **several, baselines=Later(MappedResults(none)))
    assert [name.partition("@")[0] for name in spec(evaluate).models] == [
        MODEL["uri"],
        OTHER["uri"],
        "memory://s/toy/model",
    ]


@pytest.mark.parametrize(
    ("operator", "options", "complaint"),
    [
        (EvaluateOperator, EVALUATE | {"baselines": Later(None)}, "baselines.0=None: write a string"),
        (TrainOperator, TRAIN | {"mix": Later(None)}, "mix=None: write a list"),
        (TrainOperator, TRAIN | {"mix": Later(3)}, "mix=3: write a list"),
        (EvaluateOperator, EVALUATE | {"model": Later("{'uri': 'file:///m'}")},
         "model=\"{'uri': 'file:///m'}\": it is not a URI"),
        (EvaluateOperator, EVALUATE | {"baselines": Later(["{'uri': 'file:///m'}"])}, "baselines.0="),
        (EvaluateOperator, EVALUATE | {"baselines": ["nowhere://host/m"]}, "fsspec has none of nowhere://"),
        (ExportOperator, EXPORT | {"prepare_params": Later({"o": object()})}, "prepare_params={'o': <object"),
    ],
)  # fmt: skip
def test_what_is_not_valid_when_the_task_runs_is_refused_by_its_name(
    dag: DAG, operator: type[JobOperator], options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(TrainyardError) as refused:
        spec(operator(task_id="t", dag=dag, **options))
    assert str(refused.value).startswith(f"{operator.__name__} 't': ")
    assert complaint in str(refused.value)


@pytest.mark.parametrize("name", ["n/None", "n/", "n//x", "None", "", "hdfs://nn/a/None/b", None])
def test_a_name_of_which_a_template_renders_to_nothing_is_explained(name: str | None) -> None:
    [clause] = explain_missing_part("dataset", name)
    assert clause.startswith(f"dataset='{name}' has a part without a value")


@pytest.mark.parametrize("name", ["n/2026-01-01", "file:///s/a", "/s/a", "n/Nonesuch", "s3://bucket/a"])
def test_a_name_all_of_whose_parts_have_a_value_is_not(name: str) -> None:
    assert explain_missing_part("dataset", name) == []


@pytest.mark.parametrize(
    ("mapped", "is_shared"),
    [
        ({"model": "m"}, True),
        ({"model": "m/{{ ds }}"}, True),
        ({"model": "m/{{ ti.map_index }}"}, False),
        ({"model": "m/{{ task.seed }}"}, False),
        ({"model": "m", "partition": "{{ ti.map_index }}"}, False),
        ({"seed": 1}, False),
    ],
)
def test_an_output_that_all_tasks_of_a_mapped_one_write_is_explained(mapped: dict[str, Any], is_shared: bool) -> None:
    clauses = explain_shared_output("model", mapped)
    assert bool(clauses) is is_shared
    assert not clauses or clauses[0].endswith(f"write model='{mapped['model']}/{{{{ ti.map_index }}}}'")
