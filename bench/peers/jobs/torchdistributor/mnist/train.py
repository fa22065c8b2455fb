import measure
import network
from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import SparkSession


def train(source, storage):
    from pathlib import Path

    import numpy as np
    import pyarrow.parquet as pq
    import torch
    from torch import distributed, nn, optim
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    def load(fold):
        table = pq.read_table(f"{source}/fold={fold}").combine_chunks()
        images = np.asarray(table["image"].chunk(0).flatten()).reshape(-1, network.VALUES)
        return TensorDataset(torch.from_numpy(images / np.float32(255)), torch.tensor(np.asarray(table["label"])))

    distributed.init_process_group("gloo")
    model = DistributedDataParallel(network.build())
    optimizer = optim.SGD(model.parameters(), network.LEARNING_RATE, network.MOMENTUM)
    measure.watch(optimizer)
    loss_function = nn.CrossEntropyLoss()
    first, path = 0, Path(storage, "checkpoint.pt")
    if path.exists():
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epoch"] + 1
    rows = load("train")
    sampler = DistributedSampler(rows)
    for epoch in range(first, network.EPOCHS):
        sampler.set_epoch(epoch)
        for images, labels in DataLoader(rows, network.LOCAL_BATCH, sampler=sampler):
            optimizer.zero_grad()
            loss_function(model(images), labels).backward()
            optimizer.step()
        if distributed.get_rank() == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, new := path.with_suffix(".new"))
            new.replace(path)
    images, labels = load("test").tensors
    with torch.no_grad():
        accuracy = (model.module(images).argmax(1) == labels).float().mean().item()
    distributed.destroy_process_group()
    return accuracy


if __name__ == "__main__":
    spark = SparkSession.builder.getOrCreate()
    distributor = TorchDistributor(num_processes=2, local_mode=False, use_gpu=False)
    accuracy = distributor.run(train, network.SOURCE, network.STORAGE)
    print("accuracy", accuracy)
    measure.report_accuracy(accuracy)
    spark.stop()
