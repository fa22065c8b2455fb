import tempfile

import measure
import network
import numpy as np
import ray
import torch
from ray import train
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model
from torch import nn, optim


def convert(batch):
    return {"image": np.stack(batch["image"]).astype("float32") / 255, "label": batch["label"]}


def train_loop(config):
    model = prepare_model(network.build())
    optimizer = optim.SGD(model.parameters(), network.LEARNING_RATE, network.MOMENTUM)
    measure.watch(optimizer)
    loss_function = nn.CrossEntropyLoss()
    first = 0
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            saved = torch.load(f"{folder}/state.pt")
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epoch"] + 1
    rows = train.get_dataset_shard("train")
    for epoch in range(first, network.EPOCHS):
        for batch in rows.iter_torch_batches(batch_size=network.LOCAL_BATCH, local_shuffle_buffer_size=4096):
            optimizer.zero_grad()
            loss = loss_function(model(batch["image"]), batch["label"])
            loss.backward()
            optimizer.step()
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if train.get_context().get_world_rank() == 0:
                state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
                torch.save(state, f"{folder}/state.pt")
                checkpoint = Checkpoint.from_directory(folder)
            train.report({"loss": loss.item()}, checkpoint=checkpoint)


class Predictor:
    def __init__(self, checkpoint):
        self.model = network.build()
        with checkpoint.as_directory() as folder:
            self.model.load_state_dict(torch.load(f"{folder}/state.pt")["model"])

    def __call__(self, batch):
        with torch.no_grad():
            predicted = self.model(torch.from_numpy(batch["image"])).argmax(1).numpy()
        return {"correct": (predicted == batch["label"]).astype("float32")}


if __name__ == "__main__":
    ray.init(num_cpus=4)
    rows = ray.data.read_parquet(f"{network.SOURCE}/fold=train").map_batches(convert).materialize()
    trainer = TorchTrainer(
        train_loop,
        datasets={"train": rows},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            storage_path=network.STORAGE,
            name="mnist",
            failure_config=FailureConfig(max_failures=2),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
        ),
    )
    result = trainer.fit()
    test = ray.data.read_parquet(f"{network.SOURCE}/fold=test").map_batches(convert)
    scored = test.map_batches(Predictor, fn_constructor_args=[result.checkpoint], concurrency=1)
    accuracy = scored.mean("correct")
    print("accuracy", accuracy)
    measure.report_accuracy(accuracy)
