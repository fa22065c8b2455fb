"""The operators of a pipeline: look ahead, export batches, train on them, evaluate, predict."""

from trainyard.operators.evaluate import EvaluateOperator
from trainyard.operators.export import ExportOperator
from trainyard.operators.predict import PredictOperator
from trainyard.operators.preflight import PreflightOperator
from trainyard.operators.train import TrainOperator

__all__ = ["EvaluateOperator", "ExportOperator", "PredictOperator", "PreflightOperator", "TrainOperator"]
