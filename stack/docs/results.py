"""What operators return: the keys of their result in XCom, and their meaning."""

from __future__ import annotations

DATASET = {
    "uri": "The URI of the dataset.",
    "version": "The version that was written; of a skipped export, the one that exists.",
    "content_hash": "The sha256 of columns and shards: the same for the same rows in as many shards.",
    "rows": "The number of rows.",
    "splits": "The number of rows of each split.",
    "partitions": "The number of partitions.",
    "shards": "The number of files.",
    "record_batches": "The number of record batches.",
    "bytes": "The size of the shards.",
    "warnings": "Columns that drifted beyond `warn`, splits without rows, files that Spark does not read and the like, "
    "a sentence each.",
    "reused": "True if the export was skipped; otherwise the key is missing.",
}
MODEL = {
    "uri": "The URI of the model.",
    "weights_sha256": "The sha256 of the weights.",
    "dataset_hash": "The content hash of the dataset.",
    "dataset_version": "The version of the dataset. Pass it to `dataset_since` of the next training.",
    "metrics": "The metrics of the best epoch.",
    "epochs": "The number of epochs.",
    "best_epoch": "The number of the best epoch, from 1.",
    "epoch_models": "The `uri` and `weights_sha256` of the models of all epochs, with `epoch_models=True`; also under "
    "an XCom key of this name.",
    "stopped_early": "Whether `early_stopping` ended the training.",
    "workers": "The number of workers at the end.",
    "restarts": "How often the group restarted.",
    "bytes_sent": "The bytes that rank 0 sent to the other workers.",
    "bottleneck": "What takes the largest share of the time, what would help, and what takes the next largest.",
    "limited_by": "The largest share alone.",
    "advice": "What would help alone; empty if the share cost less than 10 s.",
    "seconds": "The seconds in each phase, mean over workers.",
    "formats": "The URI of the model in each of `formats`.",
    "warnings": "What went wrong without ending the training, a sentence each.",
    "gpu_utilization": "Mean utilization of the GPU of rank 0, 0 to 1; only with `nvidia-ml-py`.",
    "gpu_memory_gib": "Maximum memory in use on this GPU; only with `nvidia-ml-py`.",
}
EVALUATION = {
    "evaluation": "The URI of the evaluation document, with confusion matrices, slices and curves.",
    "uri": "The URI of the model.",
    "weights_sha256": "The sha256 of the weights.",
    "rows": "The number of rows.",
    "metrics": "The metrics that are numbers.",
    "intervals": "The confidence interval of each metric.",
    "warnings": "A sentence if the model is worse than always giving the most frequent class, or the mean label.",
    "baselines": "For each baseline its `uri`, `metrics`, `intervals` and `differences`.",
    "dataset": "The URI of the dataset.",
    "dataset_hash": "The content hash of the dataset.",
    "dataset_version": "The version of the dataset.",
    "split": "The split.",
    "confidence": "The confidence of the intervals.",
    "query": "The column whose rows with one value were ranked together, if there is one.",
    "application": "The id of the Spark application.",
}
PREDICTIONS = {
    "uri": "Where the predictions are.",
    "model": "The URI of the model.",
    "weights_sha256": "The sha256 of its weights.",
    "rows": "The number of rows that were written.",
    "columns": "The columns of the predictions.",
    "version": 'The version of the dataset, with `output_format="trainyard"`.',
    "partitions": "The partitions that were predicted, with `partition_by`.",
    "unchanged": "The number of partitions that were left as they are, with `partition_by`.",
    "stale": "The partitions in the output that have no rows now, with `partition_by`, if there are any.",
    "warnings": "What Spark does not read of the source, and that there are no predictions, a sentence each.",
}
CHAMPION = {
    "uri": "The URI of the champion.",
    "weights_sha256": "The sha256 of its weights.",
    "metrics": "Its metrics.",
    "why": "Why it was promoted.",
}

RESULTS: dict[str, dict[str, str]] = {
    "ExportOperator": DATASET,
    "FeaturizeOperator": DATASET,
    "TrainOperator": MODEL,
    "ScriptOperator": {"workers": "The number of workers.", "restarts": "How often the group restarted."},
    "EvaluateOperator": EVALUATION,
    "PredictOperator": PREDICTIONS,
    "PromoteOperator": CHAMPION,
    "DatasetSensor": {"uri": "The URI of the dataset.", "version": "Its newest version."},
    "ChampionSensor": {key: CHAMPION[key] for key in ("uri", "weights_sha256", "metrics")},
    "ApplicationSensor": {
        "application": "The id of the application.",
        "state": "Its state in YARN.",
        "final_status": "Its final status in YARN.",
        "diagnostics": "YARN's diagnostics.",
    },
}
"""The result of each class, key by key. Those that are missing here return nothing."""
