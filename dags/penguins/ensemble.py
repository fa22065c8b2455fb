"""Train three networks on the penguins, and evaluate the mean of their predictions beside each of them."""

from airflow.sdk import DAG, Asset

from trainyard.operators import EnsembleOperator, EvaluateOperator, TrainOperator

with DAG("penguins_ensemble", schedule=[Asset("penguins/dataset")], doc_md=__doc__):
    train = TrainOperator.partial(
        task_id="train", recipe="penguins.recipe:network", dataset="penguins/dataset", epochs=20, batch_size=32
    ).expand(seed=[1, 2, 3])
    mean = EnsembleOperator(task_id="mean", models=train.output)
    EvaluateOperator(task_id="evaluate", model=mean.output, baselines=train.output)
