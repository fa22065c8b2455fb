"""The drawings of the documentation: `docs/images/*.svg`."""

from __future__ import annotations

from stack.docs.svg import Arrow, Box, Note, Part, draw


def draw_architecture() -> str:
    """Return the parts of Trainyard, and what goes between them."""
    airflow: list[Part] = [
        Box(20, 50, 236, 400, "Airflow", kind="group"),
        Box(36, 88, 204, 48, "dag.py", ("trainyard.operators",)),
        Box(36, 160, 204, 64, "plan", ("command, Spark configuration,", "job spec: a frozen value")),
        Box(36, 248, 204, 64, "submission under a YARN tag", ("retries reattach to it;", "clearing ends it")),
        Box(36, 336, 204, 48, "triggerer", ("waits, and logs the progress",)),
        Box(36, 400, 204, 36, "report, pages, XCom"),
        Arrow(((138, 136), (138, 160))),
        Arrow(((138, 224), (138, 248))),
        Arrow(((138, 312), (138, 336))),
        Arrow(((138, 384), (138, 400))),
    ]
    cluster: list[Part] = [
        Box(330, 50, 400, 400, "YARN: one Spark application for each task", kind="group"),
        Box(348, 88, 364, 56, "export", ("prepare.py on a DataFrame: splits, statistics, checksums",), "work"),
        Box(348, 166, 364, 136, "", (), "work"),
        Note(530, 186, "train: a worker group in one barrier stage", "title"),
        Box(360, 200, 106, 60, "worker 0", ("recipe.py", "GPU")),
        Box(477, 200, 106, 60, "worker 1", ("recipe.py", "GPU")),
        Box(594, 200, 106, 60, "worker N - 1", ("recipe.py", "GPU")),
        Note(530, 284, "nodes of a label; gradients by NCCL or gloo"),
        Box(348, 324, 364, 48, "evaluate", ("all metrics and intervals in one pass",), "work"),
        Box(348, 390, 364, 48, "predict", ("all rows or none",), "work"),
    ]
    storage: list[Part] = [
        Box(804, 50, 176, 400, "HDFS", kind="group"),
        Box(820, 84, 144, 64, "dataset", ("Arrow shards", "manifest, versions"), "data"),
        Box(820, 168, 144, 56, "checkpoints", ("committed by an index",), "data"),
        Box(820, 246, 144, 56, "model", ("safetensors + JSON",), "data"),
        Box(820, 324, 144, 48, "evaluation, champion", (), "data"),
        Box(820, 390, 144, 48, "predictions", ("Parquet",), "data"),
    ]
    arrows: list[Part] = [
        Arrow(((256, 270), (330, 270)), "spec"),
        Arrow(((330, 360), (256, 360)), "record,", below=False),
        Note(293, 376, "heartbeats"),
        Arrow(((712, 108), (820, 108))),
        Arrow(((820, 132), (768, 132), (768, 192), (712, 192))),
        Arrow(((712, 210), (820, 210))),
        Arrow(((712, 276), (820, 276))),
        Arrow(((712, 348), (820, 348))),
        Arrow(((712, 414), (820, 414))),
    ]
    source: list[Part] = [Note(640, 34, "source tables and files"), Arrow(((690, 40), (690, 88)))]
    return draw(1000, 470, "Architecture of Trainyard", [*airflow, *cluster, *storage, *arrows, *source])


def draw_order() -> str:
    """Return how the rows of a window become global batches, for four workers and for three."""
    parts: list[Part] = [
        Note(20, 30, "a window of 12 rows, global batches of 4 rows: 4 lanes of 3 rows", "title", "start"),
    ]
    order = (2, 0, 1), (1, 2, 0), (0, 2, 1), (2, 1, 0)
    for lane, rows in enumerate(order):
        parts.append(Note(20, 66 + 40 * lane, f"lane {lane}", "title", "start"))
        parts += [Box(90 + 56 * i, 46 + 40 * lane, 50, 30, f"r{3 * lane + i}", kind="data") for i in range(3)]
        parts.append(Arrow(((262, 61 + 40 * lane), (326, 61 + 40 * lane)), "hash" if lane == 0 else ""))
        parts += [
            Box(334 + 56 * i, 46 + 40 * lane, 50, 30, f"r{3 * lane + row}", kind="data") for i, row in enumerate(rows)
        ]
    parts += [Note(359 + 56 * i, 224, f"batch {i}") for i in range(3)]
    for title, left, owners in (("4 workers", 548, (0, 1, 2, 3)), ("2 workers", 720, (0, 0, 1, 1))):
        parts.append(Note(left + 60, 30, title, "title"))
        parts += [
            Box(left, 46 + 40 * lane, 120, 30, f"worker {owner}", kind="work") for lane, owner in enumerate(owners)
        ]
    sentence = "A batch has one row of every lane. Workers share the lanes, so its rows do not depend on their number."
    parts.append(Note(430, 252, sentence))
    return draw(860, 270, "Lanes and global batches for any number of workers", parts)


def draw_elastic() -> str:
    """Return a worker group that loses a worker, and resumes with those that remain."""
    parts: list[Part] = []
    for row in range(4):
        y = 52 + 42 * row
        lost = row == 3
        parts.append(Note(20, y + 20, f"node {row + 1}", "title", "start"))
        parts.append(Box(90, y, 250 if not lost else 196, 32, f"worker {row}", kind="work"))
        parts.append(Box(298, y, 42, 32, "lost", kind="lost") if lost else Box(352, y, 88, 32, "restart"))
        if not lost:
            parts.append(Box(452, y, 350, 32, f"worker {row} of 3, more rows each", kind="work"))
    parts += [
        Note(215, 34, "steps 0 to 240, workers=(2, 4)"),
        Note(627, 34, "steps 201 on: the same global batches"),
        Arrow(((262, 240), (262, 222))),
        Note(262, 256, "checkpoint at step 200"),
        Arrow(((452, 240), (452, 222))),
        Note(466, 256, "resumes from it, in the same application"),
    ]
    return draw(830, 276, "A worker group resumes with the remaining workers", parts)


def draw_container() -> str:
    """Return the parts of a worker's container."""
    return draw(
        760,
        176,
        "The memory of a container",
        [
            Note(20, 30, 'memory=Memory(heap="512m", native="3g")', "title", "start"),
            Box(20, 46, 110, 64, "heap", ("512 MB", "Spark"), "data"),
            Box(130, 46, 110, 64, "jvm_overhead", ("384 MB",)),
            Box(240, 46, 380, 64, "native", ("3072 MB: torch, Arrow, batches,", "all Python processes"), "work"),
            Box(620, 46, 120, 64, "rounding", ("128 MB",), "group"),
            Arrow(((130, 134), (620, 134))),
            Note(375, 152, "spark.executor.memoryOverhead = 3456 MB"),
            Note(680, 152, "container: 4096 MB"),
        ],
    )


def draw_reattach() -> str:
    """Return two attempts of a task, of which the second waits for the application of the first."""
    parts: list[Part] = [
        Note(20, 66, "attempt 1", "title", "start"),
        Note(20, 116, "attempt 2", "title", "start"),
        Note(20, 166, "application", "title", "start"),
        Note(20, 216, "storage", "title", "start"),
        Box(120, 46, 110, 32, "plan, submit", kind="work"),
        Box(242, 46, 90, 32, "wait"),
        Box(344, 46, 120, 32, "worker crashes", kind="lost"),
        Box(490, 96, 130, 32, "find by the tag", kind="work"),
        Box(632, 96, 130, 32, "wait"),
        Box(774, 96, 96, 32, "XCom", kind="data"),
        Box(196, 146, 566, 32, "runs under the tag of the task, in YARN", kind="work"),
        Box(120, 196, 64, 32, "spec", kind="data"),
        Box(720, 196, 150, 32, "run record", kind="data"),
        Arrow(((212, 78), (212, 146))),
        Arrow(((555, 128), (555, 146))),
        Arrow(((740, 178), (740, 196))),
        Arrow(((822, 196), (822, 128))),
        Arrow(((152, 78), (152, 196))),
    ]
    return draw(890, 250, "A retry reattaches to the running application", parts)


DRAWINGS = {
    "architecture": draw_architecture,
    "order": draw_order,
    "elastic": draw_elastic,
    "container": draw_container,
    "reattach": draw_reattach,
}
"""The drawings by their names in docs/images."""
