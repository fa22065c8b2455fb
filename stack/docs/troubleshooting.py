"""The page that explains errors, with the sentences of `trainyard.diagnosis`."""

from __future__ import annotations

from stack.docs.markdown import literal, page, section, table
from stack.docs.symptoms import SYMPTOMS, Symptom
from trainyard.clusters.registry import find_cluster
from trainyard.diagnosis.diagnose import diagnose
from trainyard.diagnosis.diagnosis import Diagnosis
from trainyard.planning.job import Job, Runtime, SparkConnection
from trainyard.planning.placement import Placement
from trainyard.planning.plan import Plan, build_plan
from trainyard.planning.sizing import Memory
from trainyard.schemas.specs.task_key import TaskKey

INTRODUCTION = """Search this page for a part of the error. Each entry has a text of YARN, Spark, torch or HDFS, the
sentence that Trainyard writes about it (at the end of the task's log, in the report, in the pages, and in `trainyard
show`), and why it occurs. The examples are of a training with `memory=Memory(heap="512m", native="2g")` in queue
`train`.

Errors that Trainyard finds itself, for example while a DAG is parsed or by [preflight](how-to/cluster/preflight.md),
name the operator, the option and the value, and what to write instead; they are not listed here."""
ELSEWHERE = {
    "`the worker group hangs`": "[hanging worker groups](how-to/training/resume.md#hanging-worker-groups)",
    "`rank 1 of 2 on node7 failed: ...`": "the traceback below it, which is of your recipe; exceptions in user code do "
    "not trigger a restart",
    "`pyspark ... and pyspark-client ... write the same files`, `CloudPickleSerializer() takes no arguments`": (
        "[pyspark and pyspark-client](how-to/operations/upgrade.md#pyspark-and-pyspark-client)"
    ),
    "`DOES NOT FIT`, `MAY NOT FIT`": "[preflight](how-to/cluster/preflight.md)",
    "`the cluster requires Kerberos, and there is no valid ticket`": "[Kerberos](how-to/cluster/kerberos.md"
    "#troubleshooting)",
    "`is a ... of version ...; this release of Trainyard reads version ...`": "[upgrade](how-to/operations/upgrade.md)",
    "`of another Airflow: its Variable ...`": "[orphaned applications](how-to/operations/orphans.md)",
    "nothing: the application has ended, and the task waits": "`trainyard doctor`: does a triggerer run?",
}
"""Errors that no rule explains, and where they are explained."""


def render() -> str:
    """Return the page."""
    plan = example_plan()
    topics = [section(topic, *(_render(symptom, plan) for symptom in symptoms)) for topic, symptoms in SYMPTOMS.items()]
    return page(
        "Troubleshooting",
        INTRODUCTION,
        *topics,
        section("Other errors", table(["you see", "go to"], list(ELSEWHERE.items()))),
    )


def explain(symptom: Symptom, plan: Plan) -> Diagnosis:
    """Return the diagnosis of a symptom. Raises LookupError if no rule matches."""
    found = diagnose(plan, symptom.text)
    if found is None:
        raise LookupError(f"no rule of trainyard.diagnosis matches {symptom.text!r}")
    return found


def example_plan() -> Plan:
    """Return the plan of the training that the page is about."""
    placement = Placement(queue="train", node_label="gpu")
    spark = SparkConnection("spark_default", "yarn", deploy_mode="cluster")
    key = TaskKey(dag_id="digits", run_id="r1", task_id="train", directory="hdfs:///trainyard/runs/digits/r1")
    job = Job(
        operator="TrainOperator 'train'", storage="hdfs:///trainyard", spec={}, task_key=key, workers=2,
        memory=Memory(heap="512m", native="2g"), placement=placement, gpus=1,
    )  # fmt: skip
    return build_plan(job, find_cluster(spark), Runtime("driver.py", (), {}))


def _render(symptom: Symptom, plan: Plan) -> str:
    see = f" See {symptom.see}." if symptom.see else ""
    return section(
        literal(symptom.title),
        f"```text\n{symptom.text.strip()}\n```",
        f"**Diagnosis:** {literal(explain(symptom, plan).sentence)}",
        f"**Why:** {symptom.why}{see}",
        level=3,
    )
