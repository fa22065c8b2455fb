"""The published scripts, how they are run, and what their output has to show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from stack.published.checks import Check
from stack.published.repositories import Repository

PYTORCH = Repository("pytorch/examples", "77f55b912142e11fcfdf5b530231fb9c52f181e8")
ACCELERATE = Repository("huggingface/accelerate", "16cb6eb80dd9aa8b4df1a63ef57863e455d53b83")
TRANSFORMERS = Repository("huggingface/transformers", "cc041637bc2b3639bba0b8f85672c1653cdb6248")
LIGHTNING = Repository("Lightning-AI/pytorch-lightning", "7f0c3436cd3f6ad3753125672024fc415cbcb414")
HOROVOD = Repository("horovod/horovod", "2626dc87a3a8eb8fb7d2216198ce45bce0f9e65a")
NANO_GPT = Repository("karpathy/nanoGPT", "3adf61e154c3fe3fca428ad6bc3818b27a3b8291")
MIN_GPT = Repository("karpathy/minGPT", "37baab71b9abea1b76ab957409a1cc2fbfba8a26")

DATA = "{data}"
"""Stands for the folder of the data in arguments, variables and working directories."""
FABRIC = {"LT_CLI_USED": "1", "LT_ACCELERATOR": "cpu", "LT_STRATEGY": "ddp", "LT_DEVICES": "2", "LT_NUM_NODES": "1"}
OFFLINE = {"HF_HUB_OFFLINE": "1"}


@dataclass(frozen=True)
class Script:
    """A published script.

    Attributes:
        name: The name by which it is chosen.
        repository: Where it is.
        path: Its path in the repository.
        check: What its output has to show.
        arguments: Its command line.
        variables: Environment variables that its own launcher, or a machine without a network, needs.
        data: The data that it reads, a key of `WRITERS`; an empty string for none.
        data_folder: Where in the repository it searches for them, as it has no argument for that.
        cwd: Its working directory, an empty string for its own folder.
        is_beside_dag: Whether its repository has the DAG's file, so that it imports modules from the root.
        note: What the reader of the page should know, or why it does not train on CPUs.
        trains: Whether it trains on two workers without GPUs. If not, the check is that of its own message.
        minutes: The time after which it is ended.
    """

    name: str
    repository: Repository
    path: str
    check: Check
    arguments: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    data: str = ""
    data_folder: str = ""
    cwd: str = ""
    is_beside_dag: bool = False
    note: str = ""
    trains: bool = True
    minutes: int = 10

    @property
    def folder(self) -> str:
        """The folder of the repository that is unpacked, an empty string for all of it."""
        return "" if self.is_beside_dag else str(PurePosixPath(self.path).parent).removeprefix(".")

    @property
    def clone(self) -> str:
        """The folder of the repository below the one of the DAG."""
        return "" if self.is_beside_dag else self.repository.name.replace("/", "-")

    @property
    def module(self) -> str:
        """The option `script`."""
        return ".".join(PurePosixPath(self.clone, self.path).with_suffix("").parts)


SCRIPTS = (
    Script(
        "mnist", PYTORCH, "mnist/main.py", Check(r"Accuracy: \d+/1000 \((\d+)%\)", 2, min_last=80),
        ("--epochs", "1"), data="mnist", cwd=f"{DATA}/run",
        note="not distributed: each worker trains a model of its own",
    ),
    Script(
        "imagenet", PYTORCH, "imagenet/main.py",
        Check(r"Epoch: \[\d\].*Loss \S+ \(([\d.e+-]+)\)", 16, has_fallen=True),
        (DATA, "--arch", "resnet18", "--epochs", "2", "--print-freq", "3", "--lr", "0.01", "--batch-size", "8",
         "--workers", "1", "--dist-backend", "gloo", "--dist-url", "env://"),
        data="images",
        note="without GPUs it has no DistributedDataParallel: workers share rows and evaluation, not gradients",
    ),
    Script(
        "ddp", PYTORCH, "distributed/ddp/example.py", Check("Unable to locate sufficient 2 gpus to run", 2),
        note="needs two GPUs", trains=False,
    ),
    Script(
        "FSDP2", PYTORCH, "distributed/FSDP2/example.py", Check("Unable to locate sufficient 2 gpus to run", 2),
        note="needs two GPUs", trains=False,
    ),
    Script(
        "minGPT-ddp", PYTORCH, "distributed/minGPT-ddp/mingpt/main.py",
        Check("Unable to locate sufficient 2 gpus to run", 2), note="needs two GPUs", trains=False,
    ),
    Script(
        "ddp-tutorial", PYTORCH, "distributed/ddp-tutorial-series/multigpu_torchrun.py",
        Check("(?:RuntimeError|AssertionError): .*(?:NVIDIA|CUDA)"), ("2", "1"),
        note="calls `torch.cuda.set_device` and asks for NCCL", trains=False,
    ),
    Script(
        "accelerate", ACCELERATE, "examples/nlp_example.py", Check(r"epoch \d: {'accuracy': ([\d.]+)", 3, min_last=0.7),
        ("--cpu",), OFFLINE, "sentences", cwd=DATA,
    ),
    Script(
        "accelerate-checkpointing", ACCELERATE, "examples/by_feature/checkpointing.py",
        Check(r"epoch \d: {'accuracy': ([\d.]+)", 3, min_last=0.7),
        ("--cpu", "--checkpointing_steps", "epoch", "--output_dir", "checkpoints"), OFFLINE, "sentences", cwd=DATA,
    ),
    Script(
        "accelerate-local-sgd", ACCELERATE, "examples/by_feature/local_sgd.py",
        Check(r"epoch \d: {'accuracy': ([\d.]+)", 3, min_last=0.7), ("--cpu",), OFFLINE, "sentences", cwd=DATA,
    ),
    Script(
        "accelerate-cv", ACCELERATE, "examples/cv_example.py", Check("LocalEntryNotFoundError|OfflineModeIsEnabled"),
        ("--data_dir", DATA, "--cpu"), OFFLINE, "pets",
        note="downloads weights of timm, without an option to train from random ones", trains=False,
    ),
    Script(
        "run_clm", TRANSFORMERS, "examples/pytorch/language-modeling/run_clm.py",
        Check(r"'loss': '?([\d.]+)", 3, has_fallen=True),
        ("--config_name", f"{DATA}/gpt", "--tokenizer_name", f"{DATA}/gpt", "--train_file", f"{DATA}/input.txt",
         "--block_size", "32", "--do_train", "--output_dir", "out", "--num_train_epochs", "1", "--logging_steps", "20",
         "--learning_rate", "1e-3", "--use_cpu"),
        OFFLINE, "text",
    ),
    Script(
        "run_clm_no_trainer", TRANSFORMERS, "examples/pytorch/language-modeling/run_clm_no_trainer.py",
        Check("AttributeError: TPU"),
        ("--config_name", f"{DATA}/gpt", "--tokenizer_name", f"{DATA}/gpt", "--train_file", f"{DATA}/input.txt",
         "--block_size", "32"),
        OFFLINE | {"ACCELERATE_USE_CPU": "true"}, "text",
        note="names `DistributedType.TPU`, which Accelerate 1.15 has no more", trains=False,
    ),
    Script(
        "fabric", LIGHTNING, "examples/fabric/image_classifier/train_fabric.py",
        Check(r"Test set: Average loss: [\d.]+, Accuracy: \((\d+)%\)", 2, min_last=70), ("--epochs", "1"), FABRIC,
        "mnist", "Datasets", note="the variables are those that `fabric run` sets for two devices",
    ),
    Script(
        "fabric-kfold", LIGHTNING, "examples/fabric/kfold_cv/train_fabric.py",
        Check(r"Average acc: (?:tensor\()?([\d.]+)", 2, min_last=50), ("--epochs", "1", "--folds", "2"), FABRIC,
        "mnist", "Datasets",
    ),
    Script(
        "autoencoder", LIGHTNING, "examples/pytorch/basics/autoencoder.py",
        Check(r"test_loss\S* +\W* +([\d.]+)", 1, max_last=0.07),
        ("--trainer.accelerator", "cpu", "--trainer.devices", "2", "--trainer.strategy", "ddp",
         "--trainer.max_epochs", "1", "--trainer.limit_train_batches", "200"),
        data="large mnist", data_folder="examples/Datasets", cwd=DATA,
        note="`./data` has MNIST too, as Lightning's loader of it asks for that",
    ),
    Script(
        "gan", LIGHTNING, "examples/pytorch/domain_templates/generative_adversarial_net.py",
        Check("MisconfigurationException: No supported gpu backend"), ("--lr", "0.001"), data="mnist",
        note="asks for a GPU by `Trainer(accelerator=\"gpu\")`", trains=False,
    ),
    Script(
        "horovod-mnist", HOROVOD, "examples/pytorch/pytorch_mnist.py", Check(r"Accuracy: ([\d.]+)%", 2, min_last=60),
        ("--epochs", "2", "--lr", "0.05", "--data-dir", DATA), data="mnist",
    ),
    Script(
        "horovod-benchmark", HOROVOD, "examples/pytorch/pytorch_synthetic_benchmark.py",
        Check(r"Total img/sec on 2 CPU\(s\): ([\d.]+)", 1, min_last=0.1),
        ("--model", "resnet18", "--batch-size", "2", "--num-warmup-batches", "1", "--num-batches-per-iter", "1",
         "--num-iters", "3"),
    ),
    Script(
        "horovod-elastic-mnist", HOROVOD, "examples/elastic/pytorch/pytorch_mnist_elastic.py",
        Check(r"Accuracy: ([\d.]+)%", 1, min_last=60),
        ("--epochs", "2", "--lr", "0.05", "--data-dir", DATA), data="mnist",
        note="with a fixed number of workers: `hvd.elastic` adds and removes none",
    ),
    Script(
        "horovod-elastic-benchmark", HOROVOD, "examples/elastic/pytorch/pytorch_synthetic_benchmark_elastic.py",
        Check(r"Total img/sec on 2 CPU\(s\): ([\d.]+)", 1, min_last=0.1),
        ("--model", "resnet18", "--batch-size", "2", "--num-warmup-batches", "1", "--num-batches-per-iter", "1",
         "--num-iters", "3"),
    ),
    Script(
        "nanoGPT", NANO_GPT, "train.py", Check("(?:RuntimeError|AssertionError): .*(?:NVIDIA|CUDA)"),
        ("--device=cpu", "--backend=gloo", "--compile=False", "--dataset=shakespeare_char"),
        note="uses the device `cuda:LOCAL_RANK` wherever RANK is set, whatever `--device` is", trains=False,
    ),
    Script(
        "minGPT", MIN_GPT, "projects/chargpt/chargpt.py", Check(r"train loss ([\d.]+)", 12, has_fallen=True),
        ("--model.model_type=gpt-nano", "--data.block_size=32", "--trainer.batch_size=8", "--trainer.max_iters=60",
         "--trainer.num_workers=0"),
        data="text", cwd=DATA, is_beside_dag=True,
        note="not distributed: each worker trains a model of its own; the DAG's file is in the root of the clone, "
        "because the script imports `mingpt` from there",
    ),
)  # fmt: skip


def select_scripts(names: Sequence[str]) -> list[Script]:
    """Return the scripts with these names, all scripts if there are no names.

    Raises:
        SystemExit: There is no script with a name.
    """
    known = {script.name: script for script in SCRIPTS}
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"NAMES: there is no script {unknown[0]!r}; use one of {', '.join(known)}")
    return [known[name] for name in names] if names else list(SCRIPTS)
