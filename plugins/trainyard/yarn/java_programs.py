"""Run the programs of this folder that need Hadoop's Java classes, each in a process that ends with its JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from trainyard.errors import TrainyardError
from trainyard.planning.runtime import find_spark, spark_environment

SECONDS = 120
FOLDER = Path(__file__).parent
FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options for a JVM that runs for a second."""


def build_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with the class path and options of a JVM that starts fast, without Spark's launcher.

    Args:
        env: The environment of spark-submit, whose Java options and folders of configuration are used as well.
    """
    home = find_spark(env)
    spark = [env.get("SPARK_CONF_DIR") or str(home / "conf"), str(home / "jars" / "*")] if home else []
    folders = (env.get("HADOOP_CONF_DIR"), env.get("YARN_CONF_DIR"), *spark, env.get("SPARK_DIST_CLASSPATH"))
    options = (env.get("JDK_JAVA_OPTIONS"), env.get("SPARK_SUBMIT_OPTS"), *FAST_START)
    added = {
        "CLASSPATH": os.pathsep.join(filter(None, folders)), "JDK_JAVA_OPTIONS": " ".join(filter(None, options))
    }  # fmt: skip
    return {**env, **added}


def run(name: str, *arguments: str, failure: str) -> str:
    """Return what a program prints.

    Args:
        name: The file of the program.
        arguments: Its command line.
        failure: The beginning of the error, when it fails or does not end in time.

    Raises:
        TrainyardError: It failed, or did not end in two minutes.
    """
    command = [sys.executable, str(FOLDER / name), *arguments]
    env = build_environment(os.environ | spark_environment())
    try:
        # The programs are ours.
        done = subprocess.run(  # noqa: S603
            command, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TrainyardError(f"{failure} in {error.timeout:.0f} s.") from None
    if done.returncode:
        raise TrainyardError(f"{failure}: {done.stderr.strip()[-500:]}")
    return done.stdout
