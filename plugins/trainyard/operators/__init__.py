"""The operators of a pipeline: look ahead, export, featurize, train or run a script, evaluate, promote, predict."""

from trainyard.operators.evaluate import EvaluateOperator
from trainyard.operators.export import ExportOperator
from trainyard.operators.featurize import FeaturizeOperator
from trainyard.operators.predict import PredictOperator
from trainyard.operators.preflight import PreflightOperator
from trainyard.operators.promote import PromoteOperator
from trainyard.operators.script import ScriptOperator
from trainyard.operators.train import TrainOperator

__all__ = [
    "EvaluateOperator",
    "ExportOperator",
    "FeaturizeOperator",
    "PredictOperator",
    "PreflightOperator",
    "PromoteOperator",
    "ScriptOperator",
    "TrainOperator",
]
