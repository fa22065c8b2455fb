"""The pages of the data source, of strategies, and of metrics."""

from __future__ import annotations

from stack.docs import docstrings
from stack.docs.markdown import code, page, section, table
from stack.docs.options import model_table
from trainyard.etl.datasource.options import ReadOptions, WriteOptions, list_names
from trainyard.schemas import texts
from trainyard.schemas.specs import metrics, strategies

METRICS = {
    "accuracy": "The fraction of rows whose predicted class is the label.",
    "precision": "Of the rows predicted as a class, the fraction that has it.",
    "recall": "Of the rows of a class, the fraction that is predicted as it.",
    "f1": "The harmonic mean of precision and recall of a class.",
    "auroc": "The area under the ROC curve, of one class against the others.",
    "average_precision": "The area under the curve of precision and recall.",
    "log_loss": "The mean negative log-likelihood of the label.",
    "calibration_error": "The mean distance between the predicted probability and the fraction that is right.",
    "confusion_matrix": "The rows of each label (first index) by predicted class (second index).",
    "mae": "The mean absolute error.",
    "mse": "The mean squared error.",
    "rmse": "The square root of `mse`.",
    "r2": "The fraction of the label's variance that the model explains.",
    "ndcg": "The discounted gain of the order of a query's rows, relative to the best order.",
    "mrr": "The reciprocal of the position of the first relevant row of a query.",
    "hit_rate": "The fraction of queries with a relevant row among those taken.",
}
"""What each metric measures."""
FAMILIES = {
    "Classification": (
        metrics.CLASSIFICATION,
        "The model returns a number for each of the recipe's `classes`, one number for yes or no, or a number for each "
        "of several labels. Precision, recall, F1 and the areas are means over the classes or labels that occur; for "
        "yes or no, they are those of the positive class.",
    ),
    "Regression": (metrics.REGRESSION, "The model returns a value like the label."),
    "Ranking": (
        metrics.RANKING,
        "The model returns a score, and the label is the relevance of a row. Rows with one value of `query` are ranked "
        "together. Metrics are means over queries; a query without a relevant row counts as 0. `ndcg@10`, `mrr@10` and "
        "`hit_rate@10` take only the first ten rows of a query.",
    ),
}


def render_data_source() -> str:
    """Return the page of the options of `format("trainyard")`."""
    return page(
        "Data source options",
        "Spark reads and writes datasets by the format `trainyard`, after "
        "`trainyard.etl.register(spark)`, also in a function such as `prepare`: Spark starts a Python process to find "
        "it, so jobs and the estimator, which need none, do not register it. Option names are matched without regard "
        "to case, and every value is a string.",
        section('Write: `df.write.format("trainyard")`', _option_table(WriteOptions)),
        section('Read: `spark.read.format("trainyard")`', _option_table(ReadOptions)),
    )


def _option_table(owner: type[WriteOptions | ReadOptions]) -> str:
    described = texts.read_all(owner)
    return table(["option", "meaning"], [[code(option), described[name]] for option, name in list_names(owner).items()])


def render_strategies() -> str:
    """Return the page of strategies and their options."""
    return page(
        "Strategies",
        'Written as `strategy="NAME"`, or as `strategy={"name": "NAME", "OPTION": VALUE}`, in TrainOperator and `fit`; '
        "or as an object of the class of this name from `trainyard.trainer`. "
        "[Choose a strategy](../how-to/training/strategy.md) compares them.",
        *(
            section(
                code(one.model_fields["name"].default),
                f"Class `{one.__name__}`.",
                docstrings.read(one).text,
                model_table(one, ("name",)),
            )
            for one in strategies.BUILT_IN.values()
        ),
        section(
            "Your own",
            '`strategy={"name": "module:Class", "params": {...}}`: [write one]'
            "(../how-to/training/strategy.md#a-strategy-of-your-own).",
        ),
    )


def render_metrics() -> str:
    """Return the page of metrics."""
    return page(
        "Metrics",
        "For `metrics=` of EvaluateOperator and of `trainyard.etl.evaluate`. All are computed in one pass, with "
        "intervals: [evaluate](../how-to/models/evaluate.md).",
        *(
            section(name, text, table(["metric", "better", "meaning"], [_metric(metric) for metric in names]))
            for name, (names, text) in FAMILIES.items()
        ),
        section(
            "Your own",
            "`module:function` for a function without arguments that returns a metric of torchmetrics whose states are "
            "sums; without interval.",
        ),
    )


def _metric(name: str) -> list[str]:
    return [code(name), {1: "more", -1: "less", 0: "-"}[metrics.sign(name)], METRICS[name]]
