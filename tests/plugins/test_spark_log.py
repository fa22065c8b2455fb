"""Of Spark's output the task log keeps what the job says and what went wrong."""

from trainyard.spark_log import SparkLog

OUTPUT = """\
WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
26/11/21 14:30:00 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform
Setting default log level to "WARN".
epoch 1/8  loss 0.51
26/11/21 14:30:05 WARN TaskSetManager: Lost task 0.0 in stage 1.0 (TID 1)
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/recipe.py", line 3, in network
ValueError: bad

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: java.io.IOException: gone
\t... 12 more
26/11/21 14:30:06 ERROR TaskSetManager: Task 0 in stage 1.0 failed 1 times; aborting job
epoch 2/8  loss 0.40
  file:/kept/by/the/job
26/11/21 14:30:07 INFO V2ScanRelationPushDown:
Output: id#3, image#4, label#5L

26/11/21 14:30:07 WARN DataSource: All paths were ignored:
  hdfs://namenode:8020/trainyard/digits/.predictions.a9b3
26/11/21 14:30:07 WARN TaskSetManager: Lost task 1.0 (TID 2): PythonException: Traceback (most recent call last):
  File "/x/recipe.py", line 3, in network
ValueError: bad

\tat java.base/java.lang.Thread.run(Thread.java:840)
TRAINYARD FAILED: bad
26/11/21 14:30:07 INFO ApplicationMaster:
===============================================================================
Default YARN executor launch context:
  env:
    CLASSPATH -> {{PWD}}
===============================================================================
done
"""


def test_output_of_the_job_and_errors_of_spark_are_kept() -> None:
    log = SparkLog()
    assert [line for line in OUTPUT.splitlines() if log.keep(line)] == [
        "epoch 1/8  loss 0.51",
        "26/11/21 14:30:06 ERROR TaskSetManager: Task 0 in stage 1.0 failed 1 times; aborting job",
        "epoch 2/8  loss 0.40",
        "  file:/kept/by/the/job",
        "done",
    ]


def test_the_error_of_a_jvm_that_does_not_start_is_kept() -> None:
    log = SparkLog(max_last=1)
    for line in [
        'Exception in thread "main" org.apache.spark.SparkException: Master must either be yarn or start with spark',
        "\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1046)",
        "26/11/21 14:30:06 INFO ShutdownHookManager: Shutdown hook called",
    ]:
        log.keep(line)
    assert log.last == (
        'Exception in thread "main" org.apache.spark.SparkException: Master must either be yarn or start with spark',
    )


def test_a_traceback_that_the_driver_prints_is_kept() -> None:
    log = SparkLog()
    lines = ["Traceback (most recent call last):", '  File "driver.py", line 57, in run', "ValueError: bad"]
    assert [line for line in lines if log.keep(line)] == lines
