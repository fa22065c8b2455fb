"""Each option of each operator refuses wrong values: the error names operator, option and value, and what to write."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator, BaseSensorOperator

from trainyard.errors import TrainyardError
from trainyard.jobs.operator import JobOperator
from trainyard.operators import (
    EnsembleOperator,
    EvaluateOperator,
    ExportOperator,
    FeaturizeOperator,
    Memory,
    Placement,
    PredictOperator,
    PreflightOperator,
    PromoteOperator,
    ReapOperator,
    ScriptOperator,
    TrainOperator,
)
from trainyard.sensors import ApplicationSensor, CapacitySensor, ChampionSensor, DatasetSensor

WHOLE, NUMBER, TEXT = "write a whole number", "write a number", "write a string"
LIST, DICT, CHOICE = "write a list", "write a dict", "write True or False"
POSITIVE = "write a number greater than 0"
NAME = "write a name without colons, '.' and '..', for example 'digits/model', or a URI with all its slashes"
IMPORT = "write it as 'module:name', for example 'digits.recipe:convnet'"
SECRET = {"db": {"password": "marker"}}
IN_CODE = "Let your code read it on the nodes"
IN_STORE = "Put it into a Hadoop credential store"

Refused = tuple[Any, str]
"""A wrong value, and the part of the error that says what to write."""

COUNT: list[Refused] = [(0, POSITIVE), (-1, POSITIVE), (1.5, WHOLE), ("x", WHOLE), (None, WHOLE), ([], WHOLE)]
OPTIONAL_COUNT = [case for case in COUNT if case[0] is not None]
FROM_ZERO: list[Refused] = [(-1, "write 0 or more"), (1.5, WHOLE), ("x", WHOLE), ([], WHOLE)]
NUMBER_FROM_ZERO: list[Refused] = [(-1, "write 0 or more"), ("x", NUMBER), ({}, NUMBER)]
POSITIVE_NUMBER: list[Refused] = [(0, POSITIVE), (-1, POSITIVE), ("x", NUMBER), ({}, NUMBER)]
INTEGER: list[Refused] = [(1.5, WHOLE), ("x", WHOLE), (None, WHOLE), ({}, WHOLE)]
STRING: list[Refused] = [(3, f"{TEXT}, for example '3'"), (["x"], TEXT), (None, TEXT), ({}, TEXT)]
OPTIONAL_STRING = [case for case in STRING if case[0] is not None]
LABEL: list[Refused] = [*STRING, ("", "write 1 or more characters"), (" ", "write 1 or more characters")]
OPTIONAL_LABEL = [case for case in LABEL if case[0] is not None]
CONNECTION: list[Refused] = [*STRING, ("", "write 1 or more characters")]
SWITCH: list[Refused] = [("perhaps", CHOICE), (2, CHOICE), (None, CHOICE), ([], CHOICE)]
TRACKERS: list[Refused] = [
    ("mlflow", "write a list of strings, for example ['tensorboard', 'mlflow']"),
    (3, LIST),
    (None, LIST),
    (["wandb"], "write 'tensorboard' or 'mlflow'"),
    ([3], DICT),
    ([{"name": "tensorboard", "uri": "http://x"}], "uri is of the server of 'mlflow', and 'tensorboard' has none"),
    (
        [{"name": "tensorboard", "registered_model_name": "x"}],
        "registered_model_name is of the server of 'mlflow', and 'tensorboard' has none",
    ),
    ([{"name": "mlflow", "registered_model_name": "a/b"}], "write a name without slashes, colons and quotes"),
    (["tensorboard", "tensorboard"], "'tensorboard' is named twice; remove one"),
    (
        [{"name": "mlflow", "uri": "http://m:5000"}, {"name": "mlflow", "uri": "http://m:5000/"}],
        "'mlflow' at 'http://m:5000/' is named twice; remove one",
    ),
    ([{"name": "mlflow", "uri": "http://me:marker@mlflow:5000"}], "Set MLFLOW_TRACKING_USERNAME"),
]
OPTIONAL_SWITCH = [case for case in SWITCH if case[0] is not None]
STRINGS: list[Refused] = [("x", f"{LIST}, for example ['x']"), (3, LIST), ([3], f"{TEXT}, for example '3'"), ({}, LIST)]
LIST_OF_STRINGS: list[Refused] = [("x", "write a list of strings, for example"), *STRINGS[1:], (None, LIST)]
LOCATION: list[Refused] = [
    *STRING, ("../../etc/x", NAME), ("toy/../../x", NAME), ("./toy", NAME), ("", NAME), ("/", NAME), ("file:///", NAME),
    ("s3a://me:marker@bucket/x", IN_STORE),
]  # fmt: skip
OPTIONAL_LOCATION = [case for case in LOCATION if case[0] is not None]
PARAMS: list[Refused] = [("x", DICT), ([], DICT), (0, DICT), ({3: 4}, f"{TEXT}, for example '3'"), (SECRET, IN_CODE)]
FUNCTION: list[Refused] = [
    ("toy.recipe", IMPORT), ("toy/recipe.py:network", IMPORT), (3, TEXT), (["x"], TEXT),
    ("toy.recpie:network", "there is no toy/recpie.py beside"), ("toy.recipe:netwrok", "the nearest one is 'network'"),
]  # fmt: skip
MEMORY: list[Refused] = [
    ("4", "use a number and a unit"), (4096, "write Memory(heap='4g')"), ("", "write 1 or more characters"),
    ("0.5g", "is too small: a JVM takes 834 MB"),
    ({"heap": "4g", "native": "2g"}, "write Memory(heap='4g', native='2g')"),
    (Memory(heap=4096), f"{TEXT}, for example '4096m'"),
    (Memory(heap=4), f"{TEXT}, for example '4g'"),
    (Memory(heap="4096"), "use a number and a unit, for example \"4096m\""),
    (Memory(native=None), TEXT),
    (Memory(heap="4"), "use a number and a unit, for example \"512m\""),
    (Memory(off_heap="x"), "use a number and a unit, for example \"512m\""),
    (Memory(heap="0m"), 'write "512m" or more'),
    (Memory(jvm_overhead="0m"), 'write jvm_overhead="384m", or leave it out'),
]  # fmt: skip
SOURCE: list[Refused] = [
    (3, "write a path, or a dict of format, path and options"),
    (None, "source is missing; write a path, or several as sources="),
    ({"table": "s.t", "path": "/in"}, "path and table exclude each other"),
    ({"table": "s.t", "format": "csv"}, "format and table exclude each other"),
    ({"query": "select 1", "options": {"a": 1}}, "a query has no options"),
    ({"query": "select 'jdbc:x://me:marker@db'"}, IN_STORE), ({"table": "parquet.`s3a://me:marker@b/x`"}, IN_STORE),
    ({"path": "a", "format": "table"}, "exclude each other"), ({"format": "query"}, "is not one of spark.read"),
    ({"table": ""}, "write 1 or more characters"),
    (["/in"], "write a path, or a dict"), ("", NAME), ("../in", NAME),
    ("/in/x.unknown", "write the format too, for example format='parquet'"),
    ("/in/x.tsv", "write the format too, for example format='csv'"),
    ({"path": "/in/*.jpg"}, "write the format too, for example format='binaryFile'"),
    ({"format": 3}, f"{TEXT}, for example '3'"), ({"format": "csv", "path": 3}, TEXT),
    ({"format": "csv", "options": {"header": None}}, TEXT),
    ({"format": "csv", "pth": "/in"}, "correct its name, or remove it"), ({}, "write a path, or a dict"),
    ({"format": "jdbc", "options": {"password": "marker"}}, IN_STORE),
    ({"format": "jdbc", "options": {"url": "jdbc:x://me:marker@db"}}, IN_STORE),
]  # fmt: skip
SOURCES: list[Refused] = [
    ("x", DICT), ({"orders": "/in"}, "source and sources exclude each other"), ({"a b": "/in"}, "write an identifier"),
    ({"class": "/in"}, "write an identifier"), ({"spark": "/in"}, "write an identifier"), ({"a": 3}, TEXT),
    ({"a": {"path": "/in/x.unknown"}}, "write the format too"), ({"a": "../in"}, NAME),
    ({"a": {"format": "jdbc", "options": {"password": "marker"}}}, IN_STORE),
]  # fmt: skip
OPTIONS_OF_SOURCE: list[Refused] = [
    ("header", DICT), ([], DICT), ({"header": None}, TEXT), ({"apiKey": "marker"}, IN_STORE),
]  # fmt: skip

PAIR = "write a number of executors, or a pair (min, max) for dynamic allocation"

COMMON: dict[str, list[Refused]] = {
    "conn_id": CONNECTION,
    "spark_conn_id": CONNECTION,
    "memory": MEMORY,
    "driver_memory": MEMORY,
    "preflight": [("no", "write 'strict', 'warn' or 'off'"), (False, "write 'strict'"), ([], "write 'strict'")],
    "grow_memory_to": [
        (8, f"{TEXT}, for example '8g'"), *OPTIONAL_STRING[1:], ("8", "use a number and a unit"),
        ("8x", "use a number and a unit"), ("0g", "is less than the container of the first attempt"),
        (Memory(heap="8g"), TEXT),
    ],
    "placement": [
        ("gpu", "write Placement(queue='default')"), ({"queue": "x"}, "write Placement(queue='x')"),
        ({"queue": "x", "gpus_per_worker": 1}, "write gpus_per_worker= or gpus_per_executor= beside placement="),
        ({"gpus_per_executor": 1}, "write gpus_per_worker= or gpus_per_executor= beside placement="),
        ({"que": "x"}, "Placement has no 'que'; write queue=, node_label="),
        ([], "write Placement("), (Placement(queue=3), TEXT), (Placement(node_label=["gpu"]), TEXT),
        (Placement(workers_per_container=0), "write 1 or more"), (Placement(workers_per_container=1.5), WHOLE),
        (Placement(isolation="none"), "write 'yarn', 'labels', 'whole_node' or 'docker'"),
        (Placement(isolation="docker"), "needs image="), (Placement(isolation="labels"), "needs node_label="),
        (Placement(isolation="docker", image=3), TEXT), (Placement(driver_label=3), TEXT),
    ],
    "profile": OPTIONAL_STRING,
    "conf": [
        ({3: "x"}, f"{TEXT}, for example '3'"), ("spark.task.cpus=4", DICT), ([], DICT), (0, DICT),
        ({"spark.task.cpus": None}, TEXT), ({"spark.hadoop.fs.azure.account.key.acme": "marker"}, IN_STORE),
        ({"spark.x": "http://me:marker@b"}, IN_STORE), ({"spark.x.password": "{{ conn.db.password }}"}, IN_STORE),
    ],
}  # fmt: skip
COMMON |= {
    "deferrable": OPTIONAL_SWITCH,
    "poll_interval": [*POSITIVE_NUMBER, (301, "write 300 or less")],
    "get_logs": SWITCH,
    "cancel_on_kill": SWITCH,
    "jars": [*LIST_OF_STRINGS, ([""], "write 1 or more characters")],
    "packages": [*LIST_OF_STRINGS, *(([name], "write it as 'group:artifact:version'") for name in
                                     ("abc", "", "g:a", "g:a:", "g:a:1:jar", "g:a: 1", "g:a:1,g:b:2"))],
    "files": LIST_OF_STRINGS,
    "env_vars": [
        ("A=1", DICT), ([], DICT), ({"A": True}, f"{TEXT}, for example 'true'"), ({3: "x"}, f"{TEXT}, for example '3'"),
        ({"DB_PASSWORD": "marker"}, IN_CODE), ({"URL": "http://me:marker@b"}, IN_CODE),
    ],
}  # fmt: skip
GROUP: dict[str, list[Refused]] = COMMON | {"cores_per_worker": COUNT, "gpus_per_worker": FROM_ZERO}
STAGE: dict[str, list[Refused]] = COMMON | {
    "executors": [
        (0, PAIR), (1.5, PAIR), ("many", PAIR), ([], PAIR), ({}, PAIR), ((1, 2, 3), PAIR), ((0, 4), PAIR),
        ((4, 2), "write the smaller number first"),
    ],
    "cores_per_executor": OPTIONAL_COUNT,
    "gpus_per_executor": FROM_ZERO,
}  # fmt: skip
DATASET: dict[str, list[Refused]] = {
    "prepare": [*FUNCTION, (None, TEXT)],
    "prepare_params": PARAMS,
    "source": SOURCE,
    "sources": SOURCES,
    "format": [case for case in STRING if case[0] is not None],
    "options": OPTIONS_OF_SOURCE,
    "dataset": OPTIONAL_LOCATION,
    "partition": [(True, TEXT), (["x"], TEXT), ({}, TEXT), *LABEL[-2:]],
    "force": SWITCH,
    "expect": [
        ("x", DICT), ([], DICT), ({"price": 3}, DICT), ({"price": {"minimum": 0}}, "correct its name, or remove it"),
        ({"price": {"min": "low"}}, NUMBER), ({"price": {"nulls": 2}}, "write 1 or less"),
        ({"price": {"values": "cat"}}, "write a list of values, for example ['cat', 'dog']"),
        ({"price": {"values": 3}}, "write a list of values"), ({"price": {"rows_per_value": 0}}, POSITIVE),
        ({"price": {"min": 2, "max": 1}}, "min=2 is above max=1"), ({3: {}}, TEXT),
        ({"id": {"unique": 2}}, CHOICE), ({"id": {"unique_with": "day"}}, "write a list of strings, for example ["),
        ({"id": {"unique": True, "unique_with": ["day"]}}, "unique and unique_with exclude each other"),
        ({"id": {"severity": "warning"}}, "write 'error' or 'warn'"),
    ],
    "expect_rows": [
        (3, DICT), ({"minimum": 0}, "correct its name, or remove it"), ({"min": -1}, "write 0 or more"),
        ({"min": 2, "max": 1}, "min=2 is above max=1"), ({"severity": "stop"}, "write 'error' or 'warn'"),
    ],
    "drift": [
        (0.1, DICT), ([], DICT), ({"fail": 0}, POSITIVE), ({"fail": "x"}, NUMBER), ({"stop": 1}, "correct its name"),
        ({"warn": 0.5, "fail": 0.1}, "fail=0.1 is below warn=0.5; write a larger number"), ({"columns": "x"}, LIST),
    ],
    "splits": [
        (None, DICT), ([0.5, 0.5], DICT), (3, DICT), (" ", "write 1 or"), ({"train": 0}, POSITIVE),
        ({"train": 0.5}, "fractions must sum to 1"), ({}, "fractions must sum to 1"), ({1: 1.0}, TEXT),
        ({"train": []}, NUMBER), ({"a/b": 1.0}, "use letters, digits,"),
        ({"test": "tomorrow"}, "write fractions, or a date or a time for each split, for example {'validation': '2026"),
        ({"train": 0.5, "test": "half"}, "'train' has a fraction"), ({"test": "2026-W40-4"}, "or a date or a time for"),
        ({"test": "20261001"}, "or a date or a time for each"), ({"test": "2026"}, "or a date or a time for each"),
        ({"train": 0.8, "test": "2026-10-01"}, "'train' has a fraction, and others have times"),
        ("{'train': 0.8, 'test': 0.2}", "it is the text of a dict"),
        ({"validation": "2026-11-01", "test": "2026-10-01"}, "write the earlier dates first"),
        ({"test": "2026-10-01", "late": "2026-10-01T12:00+00:00"}, "or a date or a time for each split"),
        ({"train": "2026-10-01"}, "remove 'train'"), ({"test": "2026-10-01"}, "needs split_by="),
        ({"a b": "2026-10-01"}, "use letters, digits,"),
    ],
    "split_by": OPTIONAL_LABEL,
    "folds": [(1, "write 2 or more"), (2.5, WHOLE), ("x", WHOLE)],
    "stratify": OPTIONAL_LABEL,
    "shapes": [
        ("x", DICT), ([], DICT), ({"image": 8}, LIST), ({"image": "8x8"}, LIST), ({"image": [0]}, POSITIVE),
        ({"image": ["x"]}, WHOLE),
    ],
    "variable_length": [*STRINGS, (None, LIST)],
    "nullable": [*STRINGS, (None, LIST), ([" "], "write 1 or")],
    "categories": [
        ("city", "write a list of columns, for example ['city']"), (3, DICT), ({"city": 3}, DICT),
        ([" "], "write 1 or"), ([["city"]], "write a list of columns"),
        ({"city": {"min_count": 0}}, "write 1 or more"), ({"city": {"max_size": 0}}, "write 1 or more"),
        ({"city": {"max_size": 10**7}}, "write 1e+06 or less"), ({"city": {"size": 3}}, "correct its name"),
    ],
    "label": [case for case in OPTIONAL_LABEL if case[0] != ["x"]],
    "fit": [*FUNCTION[:4], ("toy.prepare:fit", "needs split_by=, or a column as splits=")],
    "fit_params": [*PARAMS, ({"column": "x"}, "fit_params go with fit=; write both")],
    "refit": SWITCH,
    "seed": INTEGER,
    "rows_per_batch": COUNT,
    "shards": OPTIONAL_COUNT,
}  # fmt: skip
WORKERS: list[Refused] = [
    *[case for case in COUNT if case[0] != []],
    ({}, WHOLE),
    ((4, 2), "write the smaller number first"),
    ((1, 2, 3), "a pair (min, max)"),
    ([], "a pair (min, max)"),
    (("a", 2), WHOLE),
    ((0, 2), POSITIVE),
    ((1, "b"), WHOLE),
]

TABLE: dict[type, dict[str, list[Refused]]] = {
    ExportOperator: STAGE | DATASET,
    FeaturizeOperator: STAGE | DATASET | {"model": LOCATION, "layer": LABEL, "features": LABEL},
    TrainOperator: GROUP
    | {
        "recipe": [*FUNCTION, (None, "write recipe= or loop=, 'module:function'; neither is given")],
        "recipe_params": PARAMS,
        "loop": [("toy.recipe", IMPORT), (3, TEXT), (["x"], TEXT)],
        "loop_params": PARAMS,
        "dataset": LOCATION,
        "dataset_version": OPTIONAL_COUNT,
        "dataset_since": [(-1, "write 0 or more"), (1.5, WHOLE), ([], WHOLE), ("../x", NAME)],
        "on_nothing_new": [("continue", "write 'fail' or 'skip'"), (3, "write 'fail'")],
        "start_from": OPTIONAL_LOCATION,
        "mix": [
            ("a", LIST), (3, LIST), (None, LIST), (["a"], DICT), ([{"dataset": "a"}], "is missing"),
            ([{"dataset": "a", "share": 1.5}], "write a number less than 1"),
            ([{"dataset": "a", "share": 0}], POSITIVE), ([{"dataset": 3, "share": 0.5}], TEXT),
            ([{"dataset": "../a", "share": 0.5}], NAME), ([{"dataset": "a", "share": 0.5, "v": 1}], "correct its name"),
            ([{"dataset": "a", "share": 0.6}, {"dataset": "b", "share": 0.6}], "they must sum to less than 1"),
        ],
        "model": OPTIONAL_LOCATION,
        "workers": WORKERS,
        "strategy": [
            ("gossip", "known strategies are allreduce"), (3, "known strategies are"), (None, "known strategies are"),
            ([], "known strategies are"), ({"frequency": 3}, "known strategies are"),
            ({"name": "averaging", "frequency": 0}, POSITIVE), ({"name": "averaging", "often": 1}, "correct its name"),
            ({"name": "allreduce", "compression": "zip"}, "write 'fp16', 'bf16' or 'powersgd'"),
            ({"name": "fsdp", "wrap": "Block"}, "write a list, for example ['Block']"),
            ("my.votes:", "write it as 'module:name'"), ({"name": "my:Vote", "scale": 1}, "correct its name"),
        ],
        "max_restarts": FROM_ZERO,
        "hang_minutes": POSITIVE_NUMBER,
        "trackers": TRACKERS,
        "mlflow_conn_id": CONNECTION,
        "formats": [
            ("onnx", "write a list of strings, for example ['onnx', 'mlflow']"), (3, LIST), (None, LIST),
            (["keras"], "write 'mlflow', 'onnx' or 'pt2'"),
        ],
        "epoch_models": SWITCH,
        "fold": OPTIONAL_COUNT,
        "epochs": COUNT,
        "batch_size": COUNT,
        "micro_batches": COUNT,
        "seed": INTEGER,
        "bucket_by": OPTIONAL_LABEL,
        "balance": SWITCH,
        "weight_by": OPTIONAL_LABEL,
        "precision": [("float8", "write 'float32', 'bfloat16' or 'float16'"), (16, "write 'float32'")],
        "clip_norm": POSITIVE_NUMBER,
        "early_stopping": OPTIONAL_COUNT,
        "monitor": LABEL,
        "monitor_mode": [("best", "write 'min' or 'max'"), (1, "write 'min' or 'max'")],
        "compile": SWITCH,
        "cache_gb": POSITIVE_NUMBER,
        "gpu_cache_gb": NUMBER_FROM_ZERO,
        "checkpoint_minutes": POSITIVE_NUMBER,
        "checkpoint_steps": OPTIONAL_COUNT,
        "keep_checkpoints": COUNT,
    },
    ScriptOperator: GROUP
    | {
        "script": [
            ("toy/script.py", "write it as 'package.module'"), ("toy.recipe:network", "write it as 'package.module'"),
            (3, TEXT), (None, TEXT), ("toy.main", "there is no toy/main.py beside"),
        ],
        "arguments": [
            ("--epochs 3", "write a list of strings, for example ['--epochs', '3']"), (3, LIST), (None, LIST),
            (["--fast", True], f"{TEXT}, for example 'true'"), ({"--epochs": "3"}, LIST),
            (["--password", "marker"], IN_CODE), (["--url=http://me:marker@b"], IN_CODE),
        ],
        "workers": WORKERS,
        "max_restarts": FROM_ZERO,
        "hang_minutes": POSITIVE_NUMBER,
        "trackers": [
            *TRACKERS, ([{"name": "mlflow", "registered_model_name": "x"}], "is for the model of a TrainOperator"),
        ],
        "mlflow_conn_id": CONNECTION,
        "checkpoints_of": [("rank 1", "write 'rank 0' or 'all ranks'"), (1, "write 'rank 0' or 'all ranks'")],
        "cwd": [(3, TEXT)],
        "grace_seconds": [("x", NUMBER), (-1, "write 0 or more"), (None, NUMBER)],
    },
    EvaluateOperator: STAGE
    | {
        "model": [*OPTIONAL_LOCATION, (None, "write one, or several as models=")],
        "models": [
            (3, TEXT), ({}, TEXT), (["toy/other", None], TEXT), (["../x"], NAME), ("../x", NAME),
            (["toy/a"], "model and models exclude each other; remove one of them"),
        ],
        "dataset": OPTIONAL_LOCATION,
        "metrics": [
            ("accuracy", "write a list, for example ['accuracy']"), (None, LIST),
            (["acc"], "write one of accuracy"), ([3], TEXT), (["toy.recipe:netwrok"], "the nearest one is 'network'"),
            (["toy/recipe:network"], IMPORT),
        ],
        "baselines": [(3, TEXT), ({}, TEXT), (["toy/other", None], TEXT), (["../x"], NAME), ("../x", NAME)],
        "dataset_version": OPTIONAL_COUNT,
        "split": LABEL,
        "slices": [*STRINGS, (None, LIST)],
        "query": OPTIONAL_LABEL,
        "confidence": [(0, POSITIVE), (1, "write a number less than 1"), ("x", NUMBER), (None, NUMBER)],
        "examples": [*FROM_ZERO, (None, WHOLE)],
        "rows_per_batch": OPTIONAL_COUNT,
    },
    PredictOperator: STAGE
    | {
        "model": LOCATION,
        "source": SOURCE,
        "sources": SOURCES,
        "keys": [("id", "write a list, for example ['id']"), ([3], TEXT), (None, LIST)],
        "output": OPTIONAL_LOCATION,
        "format": OPTIONAL_STRING,
        "options": OPTIONS_OF_SOURCE,
        "prepare": FUNCTION,
        "prepare_params": PARAMS,
        "postprocess": FUNCTION,
        "postprocess_params": PARAMS,
        "output_format": [("csv", "write 'parquet', 'trainyard' or 'table'"), (None, "write 'parquet'")],
        "partition_by": OPTIONAL_LABEL,
        "rows_per_batch": OPTIONAL_COUNT,
    },
    EnsembleOperator: {
        "models": [("toy/a", "write a list of strings, for example ['clicks/a'"), (None, LIST), ([3], TEXT),
                   (["../a"], NAME), ({}, LIST)],
        "model": OPTIONAL_LOCATION,
        "by": [("median", "write 'mean' or 'vote'"), (None, "write 'mean' or 'vote'"), ([], "write 'mean'")],
        "weights": [("x", LIST), ([0, 1], POSITIVE), (["x", 1], NUMBER), (3, LIST)],
        "conn_id": CONNECTION,
    },
    PromoteOperator: {
        "evaluation": [(3, "write evaluate.output"), (None, "write evaluate.output"), ({"uri": "x"}, "write evaluate."),
                       ("", "write evaluate.output"), ([], "write evaluate.output")],
        "champion": LOCATION,
        "metric": [("acc", "write one of accuracy"), ("confusion_matrix", "write one of accuracy"), (3, TEXT),
                   (None, TEXT), (["accuracy"], TEXT)],
        "margin": [("much", NUMBER), (None, NUMBER), ([], NUMBER), ("nan", NUMBER), (float("inf"), NUMBER)],
        "confident": SWITCH,
        "required": [([], DICT), ("accuracy", DICT), (["accuracy"], DICT), ({"accuracy": "high"}, NUMBER),
                     ({"toy.recipe:network": 1.0}, "write one of accuracy"), ({3: 1.0}, TEXT)],
        "required_of_slices": [("accuracy", DICT), ({"accuracy": "high"}, NUMBER), ({"acc": 1.0}, "write one of acc")],
        "slice_tolerance": [*NUMBER_FROM_ZERO, ("nan", NUMBER), (float("inf"), NUMBER)],
        "on_reject": [("wait", "write 'skip', 'fail' or 'continue'"), (3, "write 'skip'")],
        "conn_id": CONNECTION,
    },
    PreflightOperator: {},
    ReapOperator: {"conn_id": CONNECTION},
    CapacitySensor: {"stage": [(3, "write a task of this DAG, or its id"), (None, "write a task"), ("", "write a task"),
                               ([], "write a task of this DAG, or its id")],
                     "deferrable": OPTIONAL_SWITCH},
    DatasetSensor: {
        "dataset": LOCATION, "since": [*FROM_ZERO, (None, WHOLE)], "conn_id": CONNECTION, "deferrable": OPTIONAL_SWITCH,
    },
    ChampionSensor: {
        "champion": LOCATION, "other_than": [*OPTIONAL_STRING, ("", "write 1 or more characters")],
        "conn_id": CONNECTION, "deferrable": OPTIONAL_SWITCH,
    },
    ApplicationSensor: {
        "application": [*STRING, ("job_1", "write the id of an application, for example 'application_17")],
        "deferrable": OPTIONAL_SWITCH,
    },
}  # fmt: skip
VALID: dict[type, dict[str, Any]] = {
    ExportOperator: {"prepare": "toy.prepare:rows", "source": "/in", "dataset": "toy/dataset"},
    FeaturizeOperator: {
        "prepare": "toy.prepare:rows", "source": "/in", "dataset": "toy/dataset", "model": "toy/m", "layer": "pool",
    },
    TrainOperator: {"recipe": "toy.recipe:network", "dataset": "toy/dataset", "model": "toy/model"},
    ScriptOperator: {"script": "toy.recipe"},
    EvaluateOperator: {"model": "toy/model", "dataset": "toy/dataset", "metrics": ["accuracy"]},
    PredictOperator: {"model": "toy/model", "source": "/in", "keys": ["id"], "output": "toy/out"},
    EnsembleOperator: {"models": ["toy/a", "toy/b"], "model": "toy/both"},
    PromoteOperator: {"evaluation": "toy/e.json", "champion": "toy/champion", "metric": "accuracy"},
    PreflightOperator: {},
    ReapOperator: {},
    CapacitySensor: {"stage": "train"},
    DatasetSensor: {"dataset": "toy/dataset"},
    ChampionSensor: {"champion": "toy/champion"},
    ApplicationSensor: {"application": "application_1790000000_0001"},
}  # fmt: skip
OF_PYDANTIC = (
    "Input should", "validation error", "Value error", "url https", "pydantic", "valid tuple", "valid dictionary",
    "after validation", "unable to parse", "[type=", "Extra inputs", "Field required", "not valid;;", "[key]",
    "this value is not valid",
)  # fmt: skip


def cases() -> Iterator[Any]:
    """Yield the wrong values of each option; of one that operators share, all with the first, and one with others."""
    tested: set[tuple[str, int]] = set()
    for operator, options in TABLE.items():
        for option, refused in options.items():
            again = (option, id(refused)) in tested
            tested.add((option, id(refused)))
            for value, instead in refused[:1] if again else refused:
                yield pytest.param(operator, option, value, instead, id=f"{operator.__name__}-{option}-{value!r}"[:80])


@pytest.fixture
def dag(dag_file: Path) -> DAG:
    dag = DAG("toy", schedule=None)
    dag.fileloc = str(dag_file)
    return dag


@pytest.mark.parametrize(("operator", "option", "value", "instead"), list(cases()))
def test_a_wrong_value_is_refused_with_what_to_write(
    dag: DAG, operator: type, option: str, value: Any, instead: str
) -> None:
    with pytest.raises(TrainyardError) as refused:
        operator(task_id="t", dag=dag, **(VALID[operator] | {option: value}))
    message = str(refused.value)
    assert message.startswith(f"{operator.__name__} 't': ")
    assert option in message
    assert instead in message
    assert repr(value) in message or not isinstance(value, int | float | str) or "marker" in value
    assert [phrase for phrase in OF_PYDANTIC if phrase in message] == []
    assert "marker" not in message
    assert message.endswith(".") and not message.endswith("..")


@pytest.mark.parametrize(
    ("value", "shown"), [(3, "=3: "), ("x", "='x': "), (["x"], ".0='x'"), ({"x": 1}, "={'x': 1}: "), (None, "=None: ")]
)
def test_the_value_is_repeated_as_python_writes_it(dag: DAG, value: Any, shown: str) -> None:
    options = VALID[EvaluateOperator] | {"metrics": value}
    with pytest.raises(TrainyardError) as refused:
        EvaluateOperator(task_id="t", dag=dag, **options)
    assert f"metrics{shown}" in str(refused.value)


@pytest.mark.parametrize(
    ("options", "instead"),
    [
        ({"recipe": "toy.recipe:network"}, "write recipe= or loop=, 'module:function'; both are given"),
        ({"recipe_params": {"classes": 3}}, "write loop_params= for loop="),
        ({"loop": None, "recipe": "toy.recipe:network", "loop_params": {"a": 1}}, "write recipe_params= for recipe="),
        ({"strategy": "diloco"}, "write strategy='allreduce' without options of it, strategy='fsdp', or a recipe="),
        ({"clip_norm": 1.0}, "call torch.nn.utils.clip_grad_norm_ before the step"),
        ({"compile": True}, "call torch.compile in the loop"),
        ({"epoch_models": True}, "a loop publishes one model"),
    ],
)
def test_options_that_a_loop_does_not_have_are_refused(dag: DAG, options: dict[str, Any], instead: str) -> None:
    valid = {"loop": "toy.recipe:network", "dataset": "toy/dataset", "model": "toy/model"}
    assert TrainOperator(task_id="valid", dag=dag, **valid).task_id == "valid"
    with pytest.raises(TrainyardError, match=re.escape(instead)):
        TrainOperator(task_id="t", dag=dag, **(valid | options))


def test_a_long_value_is_cut(dag: DAG) -> None:
    with pytest.raises(TrainyardError) as refused:
        TrainOperator(task_id="t", dag=dag, **(VALID[TrainOperator] | {"epochs": "x" * 1000}))
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("operator", TABLE)
def test_the_values_that_the_tests_start_from_are_valid(dag: DAG, operator: type) -> None:
    assert operator(task_id="t", dag=dag, **VALID[operator]).task_id == "t"


@pytest.mark.parametrize("operator", TABLE)
def test_every_option_has_a_row_in_the_table(operator: type) -> None:
    own = [kind for kind in operator.__mro__ if not issubclass(BaseSensorOperator, kind) and kind is not BaseOperator]
    constructors = [vars(kind)["__init__"] for kind in own if "__init__" in vars(kind)]
    names = {name for constructor in constructors for name in inspect.signature(constructor).parameters}
    assert names - {"self", "kwargs", "args"} == set(TABLE[operator])
    assert all(TABLE[operator].values())


def test_every_operator_has_rows_in_the_table() -> None:
    from trainyard import operators, sensors

    public = [getattr(module, name) for module in (operators, sensors) for name in module.__all__]
    assert {kind for kind in public if isinstance(kind, type) and issubclass(kind, BaseOperator)} == set(TABLE)
    assert issubclass(ExportOperator, JobOperator)
