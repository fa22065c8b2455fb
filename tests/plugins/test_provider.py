"""The metadata by which Airflow knows the package."""

from __future__ import annotations

import importlib
import json
import pkgutil
from pathlib import Path

import airflow
import jsonschema
import pytest
from airflow.sdk import BaseHook, BaseOperator, BaseSensorOperator
from airflow.triggers.base import BaseTrigger

from trainyard import provider
from trainyard.hooks import TrainyardHook, YarnHook

INFO = provider.get_provider_info()
KINDS = {"operators": BaseOperator, "sensors": BaseSensorOperator, "hooks": BaseHook, "triggers": BaseTrigger}


def test_the_metadata_is_valid_by_airflows_schema() -> None:
    schema = json.loads((Path(airflow.__path__[0]) / "provider_info.schema.json").read_text())
    jsonschema.validate(INFO, schema)


INSTALLED = [
    f"trainyard.{folder}.{module.name}"
    for folder in KINDS
    for module in pkgutil.iter_modules(importlib.import_module(f"trainyard.{folder}").__path__)
]


def list_defined(module: str, kind: type) -> list[type]:
    """Return the classes of a kind that a module defines, without base classes of others that are no operators."""
    own = [value for value in vars(importlib.import_module(module)).values() if isinstance(value, type)]
    derived = [each for each in own if issubclass(each, kind) and each.__module__ == module]
    public = importlib.import_module(module.rpartition(".")[0]).__all__
    return [
        each
        for each in derived
        if each.__name__ in public or not any(other.__module__ in INSTALLED for other in each.__subclasses__())
    ]


@pytest.mark.parametrize("folder", KINDS)
def test_every_module_with_such_a_class_is_listed(folder: str) -> None:
    modules = [name for name in INSTALLED if name.startswith(f"trainyard.{folder}.")]
    defining = [name for name in modules if list_defined(name, KINDS[folder])]
    assert sorted(defining) == sorted(INFO[folder][0]["python-modules"])


@pytest.mark.parametrize("hook", [TrainyardHook, YarnHook])
def test_the_form_of_a_connection_is_that_of_its_hook(hook: type) -> None:
    form = next(each for each in INFO["connection-types"] if each["connection-type"] == hook.conn_type)
    assert form["hook-class-name"] == f"{hook.__module__}.{hook.__name__}"
    expected = {name.replace("-", "_"): value for name, value in form["ui-field-behaviour"].items()}
    assert expected == hook.get_ui_field_behaviour()


@pytest.mark.parametrize("hook", [TrainyardHook, YarnHook])
def test_airflow_can_make_the_hook_of_a_connection(hook: type) -> None:
    """As its form does to test a connection."""
    assert hook(**{hook.conn_name_attr: "mine"}).conn_id == "mine"
