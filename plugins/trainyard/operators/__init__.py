"""The operators of a pipeline: look ahead, export batches, train on them or run a script, evaluate, predict."""

from trainyard.operators.evaluate import EvaluateOperator
from trainyard.operators.export import ExportOperator
from trainyard.operators.predict import PredictOperator
from trainyard.operators.preflight import PreflightOperator
from trainyard.operators.script import ScriptOperator
from trainyard.operators.train import TrainOperator

__all__ = [
    "EvaluateOperator",
    "ExportOperator",
    "PredictOperator",
    "PreflightOperator",
    "ScriptOperator",
    "TrainOperator",
]
