"""Operators for pipelines that prepare data on Spark, train on a group of workers, evaluate, promote and predict."""

from trainyard.jobs.assets import asset
from trainyard.operators.ensemble import EnsembleOperator
from trainyard.operators.evaluate import EvaluateOperator
from trainyard.operators.export import ExportOperator
from trainyard.operators.featurize import FeaturizeOperator
from trainyard.operators.predict import PredictOperator
from trainyard.operators.preflight import PreflightOperator
from trainyard.operators.promote import PromoteOperator
from trainyard.operators.reap import ReapOperator
from trainyard.operators.script import ScriptOperator
from trainyard.operators.train import TrainOperator
from trainyard.planning.placement import Placement
from trainyard.planning.sizing import Memory

__all__ = [
    "EnsembleOperator",
    "EvaluateOperator",
    "ExportOperator",
    "FeaturizeOperator",
    "Memory",
    "Placement",
    "PredictOperator",
    "PreflightOperator",
    "PromoteOperator",
    "ReapOperator",
    "ScriptOperator",
    "TrainOperator",
    "asset",
]
