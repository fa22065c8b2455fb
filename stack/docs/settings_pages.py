"""The pages of connections, of the configuration, and of the command line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from stack.docs.markdown import code, page, section, table
from trainyard.cli.main import parser
from trainyard.provider import get_provider_info
from trainyard.stalls import DEFAULT_MINUTES, HANG_MINUTES
from trainyard.trainer.group.heartbeats import DEFAULT_SILENCE_SECONDS, SILENCE_SECONDS
from trainyard.yarn.settings import AUTHENTICATION

CONNECTIONS = """Every operator reads two connections: one of type `spark`, with the cluster, and one of type
`trainyard`, with the storage. A third, of type `yarn`, is needed only where Airflow reaches the ResourceManager at
another address than that in `HADOOP_CONF_DIR`. [Connect a cluster](../how-to/cluster/connect.md) sets them up."""
TYPES = {
    "spark": "The Spark provider's; `spark_default` unless an operator has `spark_conn_id`.",
    "trainyard": "`trainyard_default` unless an operator has `conn_id`. Without this connection the storage is "
    "`trainyard/` in `AIRFLOW_HOME`.",
    "yarn": "The connection that `[trainyard] yarn_conn_id` names.",
    "webhdfs": "Airflow's own type, named by `webhdfs` in the extra of a `trainyard` connection: host (NameNodes of a "
    "pair are separated by a comma), port, login, and schema `http` or `https`.",
}
"""What each type of connection is for."""
SPARK = [
    ["host", "`local[N]`, for this machine, `yarn`, or `spark://HOST:PORT` for Spark standalone."],
    ["port", "The port of a standalone master, if the host has none."],
    ["extra `deploy-mode`", "`cluster` on YARN, so that the driver survives a restart of Airflow."],
    ["extra `queue`", "The queue, unless `Placement(queue=...)` names another. By default `spark.yarn.queue`."],
]
YARN = [
    ["host", "The ResourceManager, or a pair separated by a comma; each may have a port."],
    ["port", "The port; by default 8088, with `https` 8090."],
    ["schema", "`http` (default) or `https`."],
    ["login", "The user; by default that of the process."],
    ["password", "With `auth` `basic`."],
]
VARIABLES = {
    "HADOOP_CONF_DIR": "The client configuration of the cluster: the addresses of the ResourceManager and of HDFS, and "
    "whether they ask for Kerberos. `YARN_CONF_DIR` is read where it is not set.",
    "HADOOP_USER_NAME": "The user for HDFS and YARN without Kerberos, also in containers; by default that of the "
    "process.",
    "JAVA_HOME": "The Java of spark-submit; by default the `java` on the PATH.",
    "SPARK_HOME": "Used only if its major and minor version are those of the installed `pyspark`; otherwise the "
    "package is used, and `trainyard doctor` says so.",
    "SPARK_CONF_DIR": "The folder of `spark-defaults.conf`; by default `conf` in Spark's home.",
    "KRB5CCNAME": "The Kerberos ticket: [Kerberos](../how-to/cluster/kerberos.md).",
    "REQUESTS_CA_BUNDLE": "Certificates of a private authority, for HTTPS to YARN, WebHDFS and MLflow.",
    "TMPDIR": "Where the code archives are built, in a folder `trainyard-UID` that only its user can read.",
    "GLOO_SOCKET_IFNAME": "The network interface of torch's gloo between workers, in `env_vars` or on the nodes; by "
    "default the one whose address Spark uses; "
    "`NCCL_SOCKET_IFNAME` that of NCCL.",
}
"""Environment variables that are read and that Airflow does not define."""
AIRFLOW = {
    "[operators] default_deferrable": "Whether tasks and sensors wait in the triggerer.",
    "[core] security": "`kerberos`: WebHDFS connections authenticate with the ticket.",
    "[core] executor": "With an executor of several hosts, a connection without `storage` logs a warning.",
    "[api] base_url": "The address in the link to the report.",
    "[openlineage]": "Where events of [lineage](../how-to/operations/lineage.md) go.",
}
"""Settings of Airflow itself that change what Trainyard does."""
OF_SPARK = {
    HANG_MINUTES: "Minutes without a row that is read or written, after which a stage of an export, evaluation, "
    f"prediction or featurization is ended: a Python function does not return. {DEFAULT_MINUTES:g} by default.",
    SILENCE_SECONDS: "Seconds without a heartbeat after which a worker of a group is lost: its executor is removed, "
    f"and the group restarts. {DEFAULT_SILENCE_SECONDS:g} by default: a network may fail for 20 s. "
    "Increase it if a worker's Python may be blocked for longer, as by a library in C that holds its lock.",
    AUTHENTICATION: "Containers on YARN authenticate each other and encrypt what they send, unless it is set: "
    "[security](../explanation/security.md#worker-groups).",
}
"""Settings of Spark, in `conf` of an operator or in spark-defaults.conf, that Trainyard reads."""


def render_connections() -> str:
    """Return the page of connection types."""
    fields = {found["connection-type"]: found["conn-fields"] for found in get_provider_info()["connection-types"]}
    tables = {
        "spark": SPARK,
        "trainyard": list(_extras(fields["trainyard"])),
        "yarn": [*YARN, *_extras(fields["yarn"])],
        "webhdfs": [],
    }
    sections = [
        section(f"Type `{kind}`", TYPES[kind], table(["field", "meaning"], rows)) for kind, rows in tables.items()
    ]
    return page("Connections", CONNECTIONS, *sections)


def render_configuration() -> str:
    """Return the page of Airflow's section `[trainyard]`, of settings of others, and of environment variables."""
    options = get_provider_info()["config"]["trainyard"]["options"]
    rows = [
        [code(name), code(f"AIRFLOW__TRAINYARD__{name.upper()}"), code(option["default"]), option["description"]]
        for name, option in options.items()
    ]
    head = ["setting", "meaning"]
    return page(
        "Configuration",
        section("Section `[trainyard]` of Airflow's configuration",
                table(["option", "environment variable", "default", "meaning"], rows)),
        section("Settings of Airflow", table(head, [[code(name), text] for name, text in AIRFLOW.items()])),
        section("Settings of Spark", table(head, [[code(name), text] for name, text in OF_SPARK.items()])),
        section("Environment variables", table(["variable", "meaning"],
                                               [[code(name), text] for name, text in VARIABLES.items()])),
    )  # fmt: skip


def render_commands() -> str:
    """Return the page of the command `trainyard`."""
    root = parser()
    return page(
        "Command line",
        "`trainyard`, or `python -m trainyard`. The exit status is 0, 1 after an error or a failed check, 2 for "
        "arguments that are not valid, and 141 if the reader of the output has closed it, as `head` does. "
        "`trainyard --version` prints the version.",
        *(_render_command(command, text) for command, text in _commands(root)),
    )


def _render_command(command: argparse.ArgumentParser, text: str) -> str:
    rows = [[_names(action), _action_default(action), action.help or ""] for action in _arguments(command)]
    return section(
        code(command.prog),
        f"{text[:1].upper()}{text[1:]}." if text else "",
        table(["argument", "default", "meaning"], rows),
    )


def _commands(root: argparse.ArgumentParser) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """Yield each command that runs something, with its help, in the order of the parser."""
    for action in root._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, command in action.choices.items():
                nested = list(_commands(command))
                yield from nested or [(command, texts[name])]


def _arguments(command: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in command._actions if not isinstance(action, argparse._HelpAction)]


def _names(action: argparse.Action) -> str:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if not action.option_strings:
        return code(metavar or action.dest.upper())
    value = metavar or (f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper())
    names = ", ".join(action.option_strings)
    return code(names if action.nargs == 0 else f"{names} {value}".strip())


def _action_default(action: argparse.Action) -> str:
    if action.nargs == 0 or action.default in (None, [], argparse.SUPPRESS):
        return "required" if action.required else ""
    return code(str(action.default))


def _extras(fields: dict[str, Any]) -> Iterator[list[str]]:
    for name, field in fields.items():
        yield [f"extra {code(name)}", f"{field['description']}."]
