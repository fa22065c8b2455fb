"""Train a generative adversarial network on handwritten digits, in a loop of its own."""

from airflow.sdk import DAG, Param, task

from trainyard.files import uris
from trainyard.hooks import TrainyardHook
from trainyard.operators import ExportOperator, ScriptOperator

with DAG("gan", schedule=None, params={"epochs": Param(40, type="integer", minimum=1)}, doc_md=__doc__):

    @task(multiple_outputs=True)
    def paths() -> dict[str, str]:
        from digits.source import write

        folder = TrainyardHook().path("gan")
        return {"source": write(uris.join(folder, "source")), "model": uris.join(folder, "generator.pt")}

    path = paths()
    export = ExportOperator(
        task_id="export",
        prepare="digits.prepare:images",
        source=path["source"],
        format="binaryFile",
        options={"recursiveFileLookup": True},
        dataset="gan/dataset",
        shapes={"image": [1, 8, 8]},
        splits={"train": 1.0},
    )
    ScriptOperator(
        task_id="train",
        script="gan.loop",
        arguments=[export.output, path["model"], "--epochs", "{{ params.epochs }}"],
        workers=2,
    )
