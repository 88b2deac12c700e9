"""A real standalone cluster: a master and two workers of one core each, on loopback."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quorate.spark.session.settings import BRIEF_JAVA
from tests.support.recorded_incident import ROOT

from .conftest import LongLog, job_answer
from .daemons import spark_home, standalone_cluster
from .drivers import run_driver

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SMALL = (
    *("--driver-memory", "1g", "--conf", "spark.executor.memory=512m"),
    *("--conf", "spark.sql.shuffle.partitions=4"),
    *("--conf", f"spark.executor.extraJavaOptions={BRIEF_JAVA}"),
)
ON_LOOPBACK = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with standalone_cluster(tmp_path_factory.mktemp("standalone")) as url:
        yield url


def test_executors_read_a_log_with_the_code_that_was_shipped(
    master: str, tmp_path: Path, local_answer: Any
) -> None:
    answer = job_answer(master, tmp_path, **ON_LOOPBACK)
    assert answer["digest"] == local_answer["digest"]
    assert answer["twice"] == local_answer["twice"]
    assert answer["executors"] == 2
    assert [".zip/coordinator/" in file for file in answer["files"]] == [True] * len(answer["files"])
    assert answer["failure"] == "InputError('this log is damaged; copy it again', '')"


def test_a_run_on_it_makes_the_tables_that_one_process_makes(
    master: str, long_log: LongLog, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "quorate", "pipeline", "run", "--master", master, *SMALL]
    done = run_driver([*command, "--input", long_log.path, "--output", "tables"], tmp_path, ON_LOOPBACK)
    assert "starting Spark" in done.stderr
    long_log.assert_same(tmp_path / "tables")


def test_spark_submit_runs_the_zip(master: str, long_log: LongLog, tmp_path: Path) -> None:
    """The main file is copied away, so that driver and executors get our code from the zip alone."""
    zipped = run_driver([sys.executable, "-m", "quorate.spark", "zip", "quorate.zip"], tmp_path)
    assert "spark-submit --py-files quorate.zip" in zipped.stdout
    main = shutil.copy(ROOT / "quorate" / "spark" / "__main__.py", tmp_path / "quorate_pipeline.py")
    environment = {**ON_LOOPBACK, "PYTHONPATH": "", "SPARK_CONF_DIR": str(quiet_conf(tmp_path))}
    command = [spark_home() / "bin" / "spark-submit", "--master", master, "--py-files", "quorate.zip"]
    asked = ["run", "--input", str(long_log.path), "--output", "tables", "--report", "report.html"]
    done = run_driver([*command, *SMALL, main, *asked], tmp_path, environment)
    assert f"records: {long_log.rows['records'].total()} new rows" in done.stdout
    long_log.assert_same(tmp_path / "tables")
    assert "</html>" in (tmp_path / "report.html").read_text()


def test_a_refusal_under_spark_submit_is_one_line(master: str, tmp_path: Path) -> None:
    run_driver([sys.executable, "-m", "quorate.spark", "zip", "quorate.zip"], tmp_path)
    environment = {**ON_LOOPBACK, "SPARK_CONF_DIR": str(quiet_conf(tmp_path))}
    command = [spark_home() / "bin" / "spark-submit", "--master", master, "--py-files", "quorate.zip"]
    asked = ["run", "--input", "nothing-here", "--output", "tables"]
    done = run_driver(
        [*command, ROOT / "quorate" / "spark" / "__main__.py", *asked], tmp_path, environment, exit_code=1
    )
    lines = done.stdout.splitlines()  # spark-submit merges its child's two streams
    assert len(lines) == 1, done.stdout
    assert lines[0].startswith("pipeline: error: ")
    assert "nothing-here" in lines[0]
    assert not (tmp_path / "tables").exists()


def quiet_conf(scratch: Path) -> Path:
    """A user's own logging configuration, which spark-submit reads."""
    folder = scratch / "conf"
    folder.mkdir()
    (folder / "log4j2.properties").write_text("rootLogger.level = off\n")
    return folder
