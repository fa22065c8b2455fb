import measure
import network
from horovod.spark.common.backend import SparkBackend
from horovod.spark.common.store import Store
from horovod.spark.torch import TorchEstimator
from pyspark.ml.functions import array_to_vector
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = network.build()

    def forward(self, image):
        return self.model(image.float())


if __name__ == "__main__":
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    image = array_to_vector(F.transform("image", lambda pixel: (pixel / 255).cast("float")))
    source = spark.read.parquet(network.SOURCE).withColumn("image", image)
    source = source.withColumn("label", F.col("label").cast("long"))
    model = Classifier()
    optimizer = measure.MarkedSGD(  # a user writes optim.SGD
        model.parameters(), network.LEARNING_RATE / 2, network.MOMENTUM
    )
    loss_function = nn.CrossEntropyLoss()
    estimator = TorchEstimator(
        backend=SparkBackend(num_proc=2),
        store=Store.create(network.STORAGE),
        model=model,
        optimizer=optimizer,
        loss=lambda scores, label: loss_function(scores, label.long()),
        input_shapes=[[-1, network.VALUES]],
        feature_cols=["image"],
        label_cols=["label"],
        batch_size=network.LOCAL_BATCH,
        epochs=network.EPOCHS,
    )
    trained = estimator.fit(source.where("fold = 'train'")).setOutputCols(["scores"])
    scored = trained.transform(source.where("fold = 'test'"))
    predicted = F.udf(lambda scores: int(scores.toArray().argmax()), "long")
    accuracy = scored.select(F.avg((predicted("scores") == F.col("label")).cast("double"))).first()[0]
    print("accuracy", accuracy)
    measure.report_accuracy(accuracy)
    spark.stop()
