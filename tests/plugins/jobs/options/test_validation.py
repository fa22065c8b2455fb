"""Bad input is refused while the DAG is parsed, in one sentence that says what to write instead."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from trainyard.errors import TrainyardError, UnavailableError
from trainyard.hooks.trainyard import Settings
from trainyard.jobs.operator import JobOperator
from trainyard.jobs.options.base import ATTRIBUTES
from trainyard.jobs.options.validation import convert
from trainyard.operators import EvaluateOperator, ExportOperator, PredictOperator, ScriptOperator, TrainOperator
from trainyard.schemas import model_artifact
from trainyard.schemas.specs.export import ExportSpec
from trainyard.schemas.specs.script import ScriptSpec
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainOptions, TrainSpec


@pytest.fixture
def dag(dag_file: Path) -> DAG:
    made = DAG("toy", schedule=None)
    made.fileloc = str(dag_file)
    return made


def export(dag: DAG, **options: Any) -> ExportOperator:
    given = {"task_id": "export", "prepare": "toy.prepare:rows", "source": "/in", "dataset": "toy/dataset"}
    return ExportOperator(dag=dag, **(given | options))


def train(dag: DAG, **options: Any) -> TrainOperator:
    given = {"task_id": "train", "recipe": "toy.recipe:network", "dataset": "toy/dataset", "model": "toy/model"}
    return TrainOperator(dag=dag, **(given | options))


def script(dag: DAG, **options: Any) -> ScriptOperator:
    return ScriptOperator(dag=dag, **({"task_id": "script", "script": "toy.recipe"} | options))


def evaluate(dag: DAG, **options: Any) -> EvaluateOperator:
    given = {"task_id": "evaluate", "model": "toy/model", "dataset": "toy/dataset", "metrics": ["accuracy"]}
    return EvaluateOperator(dag=dag, **(given | options))


def predict(dag: DAG, **options: Any) -> PredictOperator:
    given = {"task_id": "predict", "model": "toy/model", "source": "/in", "keys": ["id"], "output": "toy/out"}
    return PredictOperator(dag=dag, **(given | options))


@pytest.mark.parametrize(
    ("operator", "options", "message"),
    [
        (train, {"epochs": -1}, "TrainOperator 'train': epochs=-1: write a number greater than 0."),
        (train, {"epoch": 3}, "TrainOperator 'train': 'epoch' is not a known option; the nearest one is 'epochs'."),
        (
            train,
            {"recipe": "toy.recipe"},
            "TrainOperator 'train': recipe='toy.recipe': write it as 'module:name', for example "
            "'digits.recipe:convnet'.",
        ),
        (
            export,
            {"expect": {"price": {"minimum": 0}}},
            "ExportOperator 'export': expect.price.minimum is not a known option; correct its name, or remove it.",
        ),
        (
            export,
            {"expect": {"price": {"min": 2, "max": 1}}},
            "ExportOperator 'export': expect.price={'min': 2, 'max': 1}: min=2 is above max=1.",
        ),
        (export, {"drift": {"fail": 0}}, "ExportOperator 'export': drift.fail=0: write a number greater than 0."),
        (train, {"workers": 0}, "TrainOperator 'train': workers=0: write a number greater than 0."),
        (
            train,
            {"formats": "onnx"},
            "TrainOperator 'train': formats='onnx': write a list of strings, for example ['onnx', 'mlflow'].",
        ),
        (
            train,
            {"formats": ["onnx", "keras"]},
            "TrainOperator 'train': formats.1='keras': write 'mlflow', 'onnx' or 'pt2'.",
        ),
        (train, {"batch_size": 0}, "TrainOperator 'train': batch_size=0: write a number greater than 0."),
        (
            train,
            {"strategy": "gossip"},
            "TrainOperator 'train': strategy='gossip': known strategies are allreduce, averaging, threshold, "
            "horovod, diloco, fsdp, and 'module:Class' for one of your own; their options go in a dict with a 'name'.",
        ),
        (
            train,
            {"strategy": {"name": "averaging", "frequency": 0}},
            "TrainOperator 'train': strategy.averaging.frequency=0: write a number greater than 0.",
        ),
        (
            train,
            {"strategy": "threshold", "precision": "float16"},
            "TrainOperator 'train': strategy='threshold' and precision='float16' exclude each other: the loss scale "
            "may differ between workers; write precision='bfloat16'.",
        ),
        (
            train,
            {"workers": (4, 2)},
            "TrainOperator 'train': workers=(4, 2): write the smaller number first.",
        ),
        (
            train,
            {"workers": (1, 2, 3)},
            "TrainOperator 'train': workers=(1, 2, 3): write a number of workers, or a pair (min, max).",
        ),
        (
            train,
            {"precision": "float8", "seed": "x"},
            "TrainOperator 'train': seed='x': write a whole number; "
            "precision='float8': write 'float32', 'bfloat16' or 'float16'.",
        ),
        (
            script,
            {"script": "toy/script.py"},
            "ScriptOperator 'script': script='toy/script.py': write it as 'package.module', for example "
            "'digits.horovod_script'.",
        ),
        (
            script,
            {"arguments": ["--fast", True]},
            "ScriptOperator 'script': arguments.1=True: write a string, for example 'true'.",
        ),
        (
            script,
            {"arguments": "--epochs 3"},
            "ScriptOperator 'script': arguments='--epochs 3': write a list of strings, for example ['--epochs', '3'].",
        ),
        (script, {"workers": 0}, "ScriptOperator 'script': workers=0: write a number greater than 0."),
        (
            script,
            {"max_restarts": -1},
            "ScriptOperator 'script': max_restarts=-1: write 0 or more.",
        ),
        (
            script,
            {"args": []},
            "ScriptOperator 'script': 'args' is not a known option; the nearest one is 'arguments'.",
        ),
        (
            export,
            {"splits": "part", "split_by": "day"},
            "ExportOperator 'export': split_by='day' divides the rows by fractions, and splits='part' are none; remove "
            "one of them.",
        ),
        (
            export,
            {"split_by": "day", "splits": {"test": "2026-10-01"}, "folds": 2},
            "ExportOperator 'export': folds=2 divides the rows by fractions, and splits={'test': '2026-10-01'} are "
            "none; remove one of them.",
        ),
        (
            export,
            {"splits": {"train": 0.8, "test": 0.1}},
            "ExportOperator 'export': splits={'train': 0.8, 'test': 0.1}: they sum to 0.9; fractions must sum to 1.",
        ),
        (
            export,
            {"splits": {"train": 1.2, "test": -0.2}},
            "ExportOperator 'export': splits.test=-0.2: write a number greater than 0.",
        ),
        (
            export,
            {"split_by": "user", "stratify": "label"},
            "ExportOperator 'export': split_by and stratify exclude each other; remove one of them.",
        ),
        (
            export,
            {"rows_per_batch": 0},
            "ExportOperator 'export': rows_per_batch=0: write a number greater than 0.",
        ),
        (
            export,
            {"source": {"format": "csv", "pth": "/in"}},
            "ExportOperator 'export': source.pth is not a known option; correct its name, or remove it.",
        ),
        (
            predict,
            {"output_format": "table", "output": "toy/predict"},
            "output='toy/predict': it is not the name of a table; write one such as 'sales.predictions'.",
        ),
    ],
)
def test_a_bad_option_is_named_with_its_value_and_what_is_accepted(
    dag: DAG, operator: Callable[..., JobOperator], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TrainyardError) as refused:
        operator(dag, **options)
    assert str(refused.value).endswith(message)


def test_an_unknown_metric_is_refused_with_the_known_ones(dag: DAG) -> None:
    message = r"^EvaluateOperator 'evaluate': metrics\.0='acc': write one of accuracy, .*ndcg@10, or 'module:function'"
    with pytest.raises(TrainyardError, match=message):
        evaluate(dag, metrics=["acc"])


def test_missing_code_is_refused_with_the_names_that_exist(dag: DAG) -> None:
    with pytest.raises(TrainyardError, match=r"no toy/recpie\.py beside .* holds prepare, recipe"):
        train(dag, recipe="toy.recpie:network")
    with pytest.raises(TrainyardError, match=r"^TrainOperator 'voting': strategy='toy\.signs:Vote': there is no toy"):
        train(dag, task_id="voting", strategy={"name": "toy.signs:Vote", "params": {"scale": 2}})
    missing = (
        r"^ScriptOperator 'script': script='toy\.main': there is no toy/main\.py beside .* holds prepare, recipe\.$"
    )
    with pytest.raises(TrainyardError, match=missing):
        script(dag, script="toy.main")


def test_a_misspelled_required_option_is_named(dag: DAG) -> None:
    with pytest.raises(TrainyardError, match="'recipes' is not a known option; the nearest one is 'recipe'"):
        TrainOperator(task_id="train", dag=dag, recipes="toy.recipe:network", dataset="b", model="m")


def test_a_template_is_validated_when_it_is_rendered(dag: DAG) -> None:
    train(dag, epochs="{{ params.epochs }}", workers="{{ params.workers }}", recipe="{{ params.recipe }}")
    train(dag, task_id="loop", recipe=None, loop="{{ params.loop }}", loop_params={"rate": "{{ params.rate }}"})
    export(dag, splits={"train": "{{ params.fraction }}", "test": 0.2}, seed="{{ params.seed }}")


def test_an_option_that_airflow_does_not_render_has_its_type_from_the_beginning(dag: DAG) -> None:
    """Text that is true if it is not empty, as from a Variable, would be taken for True."""
    stage = export(dag, poll_interval="5", deferrable="False", get_logs="true", cancel_on_kill="no")
    assert (stage.poll_interval, stage.deferrable, stage.get_logs, stage.cancel_on_kill) == (5.0, False, True, False)


@pytest.mark.parametrize(("option", "accepted"), [("poll_interval", "a number"), ("cancel_on_kill", "True or False")])
def test_a_template_in_an_option_that_airflow_does_not_render_is_refused(dag: DAG, option: str, accepted: str) -> None:
    with pytest.raises(TrainyardError, match=rf"{option}='{{{{ params.x }}}}': write {accepted}"):
        export(dag, **{option: "{{ params.x }}"})


def test_a_block_of_a_template_is_validated_when_it_is_rendered(dag: DAG) -> None:
    epochs = "{% if params.quick %}1{% else %}20{% endif %}"
    assert train(dag, epochs=epochs, model="toy/{% raw %}model{% endraw %}").outlets == []
    export(dag, splits={"train": "{% if params.quick %}0.1{% else %}0.8{% endif %}", "test": 0.2})


def test_a_template_does_not_hide_an_error_in_another_field(dag: DAG) -> None:
    with pytest.raises(TrainyardError, match=r"sum to 0\.5"):
        export(dag, source="{{ var.value.source }}", seed="{{ params.seed }}", splits={"train": 0.5})
    with pytest.raises(TrainyardError, match="epochs=-1"):
        train(dag, workers="{{ params.workers }}", epochs=-1)


def test_the_result_of_another_task_is_validated_when_it_exists(dag: DAG) -> None:
    source = export(dag)
    stage = train(dag, dataset=source.output)
    assert stage.upstream_task_ids == {"export"}
    program = script(dag, arguments=["--data", source.output, "--epochs", "{{ params.epochs }}"])
    assert program.upstream_task_ids == {"export"}


def test_a_script_receives_the_uri_of_the_result_of_another_task(dag: DAG) -> None:
    program = script(dag, arguments="{{ what Airflow renders }}")
    program.arguments = ["--data", {"uri": "file:///s/toy/dataset", "rows": 40}, "--name", "toy/dataset"]
    assert program.resolve_fields("file:///s")["arguments"] == [
        "--data",
        "file:///s/toy/dataset",
        "--name",
        "toy/dataset",
    ]


def test_a_number_is_its_text_in_options_of_texts(dag: DAG) -> None:
    """A template renders to one with `render_template_as_native_obj`."""
    program = script(dag, arguments=["--epochs", 3, 0.5], conf={"spark.task.maxFailures": 8}, env_vars={"SEED": 1})
    task_key = TaskKey(dag_id="toy", run_id="r", task_id="script", directory="file:///s/runs/toy/r")
    assert program.build_spec(task_key, "file:///s").arguments == ("--epochs", "3", "0.5")  # type: ignore[attr-defined]
    options = convert(program, program.OPTIONS)
    assert (options.conf, options.env_vars) == ({"spark.task.maxFailures": "8"}, {"SEED": "1"})
    source = export(dag, format="csv", options={"maxColumns": 20}).build_spec(task_key, "file:///s").source  # type: ignore[attr-defined]
    assert source.options == {"maxColumns": "20"}


@pytest.mark.parametrize("operator", [train, evaluate])
def test_the_version_that_an_export_returned_is_read(operator: Any, dag: DAG) -> None:
    stage = operator(dag, dataset="{{ what Airflow renders }}")
    stage.dataset = {"uri": "file:///s/toy/dataset", "version": 3}
    located = stage.resolve_fields("file:///s")
    assert (located["dataset"], located["dataset_version"]) == ("file:///s/toy/dataset", 3)


def test_an_explicit_version_wins_over_the_one_that_an_export_returned(dag: DAG) -> None:
    stage = train(dag, dataset="{{ what Airflow renders }}", dataset_version=2)
    stage.dataset = {"uri": "file:///s/toy/dataset", "version": 3}
    assert stage.resolve_fields("file:///s")["dataset_version"] == 2


@pytest.mark.parametrize(
    "options",
    [{"url": "jdbc:x", "password": "marker"}, {"sfToken": "marker"}, {"url": "jdbc:x:?user=me&password=marker"}],
)
def test_a_secret_in_a_source_is_refused_and_not_repeated(dag: DAG, options: dict[str, str]) -> None:
    with pytest.raises(TrainyardError, match="Put it into a Hadoop credential store") as refused:
        export(dag, source={"format": "jdbc", "options": options})
    assert "marker" not in str(refused.value)


@pytest.mark.parametrize("option", ["jars", "files"])
def test_a_secret_in_the_uri_of_a_shipped_file_is_refused_and_not_repeated(dag: DAG, option: str) -> None:
    uris = ["hdfs:///one", "https://me:marker@repository.example/two"]
    with pytest.raises(TrainyardError, match=f"ExportOperator 'export': {option}: number 2 has a secret") as refused:
        export(dag, **{option: uris})
    assert "marker" not in str(refused.value)


@pytest.mark.parametrize(("option", "value"), [("model", "../../etc/x"), ("dataset", "toy/../../x")])
def test_a_name_that_a_template_renders_to_is_below_the_storage_root_too(dag: DAG, option: str, value: str) -> None:
    stage = train(dag, **{option: "{{ params.name }}"})
    setattr(stage, option, value)
    task_key = TaskKey(dag_id="toy", run_id="r", task_id="train", directory="file:///s/runs/toy/r")
    with pytest.raises(TrainyardError, match=rf"^TrainOperator 'train': {option}='{value}': it is not below the"):
        stage.plan(task_key, Settings("file:///s"))


def test_a_storage_that_does_not_answer_is_not_a_wrong_option(dag: DAG, monkeypatch: pytest.MonkeyPatch) -> None:
    """A retry may find it."""

    def exists(uri: str) -> bool:
        raise UnavailableError("no NameNode answers.")

    monkeypatch.setattr(model_artifact, "exists", exists)
    task_key = TaskKey(dag_id="toy", run_id="r", task_id="evaluate", directory="file:///s/runs/toy/r")
    with pytest.raises(UnavailableError, match=r"^EvaluateOperator 'evaluate': no NameNode answers\.$"):
        evaluate(dag, baselines="toy/other").plan(task_key, Settings("file:///s"))


def test_datasets_of_mix_are_resolved_like_dataset(dag: DAG) -> None:
    exported = {"uri": "file:///s/toy/more", "version": 3}
    stage = train(dag, mix=[{"dataset": "{{ what Airflow renders }}", "share": 0.2}])
    stage.mix = [{"dataset": exported, "share": 0.2}, {"dataset": "toy/other", "share": "0.1"}]
    assert stage.resolve_fields("file:///s")["mix"] == [
        {"dataset": "file:///s/toy/more", "share": 0.2, "version": 3},
        {"dataset": "file:///s/toy/other", "share": "0.1"},
    ]


@pytest.mark.parametrize(
    ("mix", "complaint"),
    [
        ([{"dataset": "a", "share": 1.5}], r"mix.0.share=1.5: write a number less than 1"),
        ([{"dataset": "a"}], r"mix.0.share is missing"),
        (
            [{"dataset": "a", "share": 0.6}, {"dataset": "b", "share": 0.4}],
            "the shares sum to 1; they must sum to less than 1",
        ),
        ([{"dataset": "a", "parts": 2, "share": 0.5}], "parts"),
        ("a", "mix='a'"),
    ],
)
def test_an_invalid_mix_is_refused_while_the_dag_is_parsed(dag: DAG, mix: Any, complaint: str) -> None:
    with pytest.raises(TrainyardError, match=complaint):
        train(dag, mix=mix)


def test_defaults_of_options_are_those_of_the_spec(dag: DAG) -> None:
    assert train(dag).spec_fields()["options"] == TrainOptions().model_dump()
    for operator, spec in [(export(dag), ExportSpec), (train(dag, task_id="t"), TrainSpec), (script(dag), ScriptSpec)]:
        fields = operator.spec_fields()
        for name, field in spec.model_fields.items():
            if name in fields and name not in ("options", "source", "recipe") and not field.is_required():
                assert fields[name] == field.get_default(call_default_factory=True), name


def test_every_option_may_be_a_template(dag: DAG) -> None:
    for operator in (export(dag), train(dag), script(dag), evaluate(dag), predict(dag)):
        options = set(operator.spec_fields()) - {"options", *ATTRIBUTES}
        assert options <= set(operator.template_fields)
        assert all(hasattr(operator, name) for name in operator.template_fields)


def test_the_modules_of_another_format_are_required_on_the_nodes(dag: DAG) -> None:
    from trainyard.trainer.formats import export

    modules = TrainOperator.REQUIREMENTS.modules
    operator = train(dag, task_id="train")
    for name in export.FORMATS:
        packages = export.get_format(name).PACKAGES
        assert operator.modules({"formats": [name], "trackers": []}) == (*modules, *packages)
    registering = {"formats": [], "trackers": [{"name": "mlflow", "registered_model_name": "digits"}]}
    assert operator.modules(registering) == (*modules, *export.get_format("mlflow").PACKAGES)


def test_maven_coordinates_may_be_templates(dag: DAG) -> None:
    export(dag, packages=["{{ params.package }}", "org.openlineage:openlineage-spark_{{ params.scala }}:1.54.0"])
