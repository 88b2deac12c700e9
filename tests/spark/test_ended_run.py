"""`quorate pipeline run` stopped while Spark works: it leaves nothing, and the next run starts over."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quorate.spark.tables import Output, read_progress
from tests.report import count_fault
from tests.support.waiting import wait_for

from .conftest import LongLog
from .drivers import run_driver, start_driver

pytestmark = pytest.mark.spark

WAIT_S = 200.0
"""Far more than needed, for an overloaded machine."""
SIGTERM_CODE = 143
UNDER_WAY = {
    "records": "records/rows-*.parquet",
    "facts": "ownership/rows-*.parquet",
}
"""A file that exists in the output while Spark writes, by stage."""


@contextmanager
def started(words: list[str | Path], scratch: Path) -> Iterator[subprocess.Popen[str]]:
    process = start_driver(words, scratch)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.timeout(900)
def test_a_run_that_is_ended_while_spark_works_changes_nothing(long_log: LongLog, tmp_path: Path) -> None:
    output, scratch = tmp_path / "tables", tmp_path / "scratch"
    scratch.mkdir()
    words: list[str | Path] = [sys.executable, "-m", "quorate", "pipeline", "run", "--master", "local[2]"]
    words += ["--input", long_log.path, "--output", output, "--driver-memory", "1g"]
    for stage, sign in UNDER_WAY.items():
        for file in output.rglob("rows-*.parquet"):  # no reader knows of them
            file.unlink()
        with started(words, scratch) as process:
            wait_for(
                lambda process=process, sign=sign: any(output.glob(sign)) or process.poll() is not None,
                f"Spark writes {stage}",
                WAIT_S,
            )
            count_fault("spark", "run ended")
            process.terminate()
            _, said = process.communicate(timeout=WAIT_S)
        assert process.returncode == SIGTERM_CODE, f"{stage}\n{said}"
        assert said.splitlines()[-1] == "stopped: the tables are as of the last commit", stage
        assert "Traceback" not in said
        assert read_progress(output).run == 0
        assert not list(output.glob("_quorate/staging/*")), stage
        with Output.open(output, cluster_id=read_progress(output).cluster_id) as free:
            assert free.progress.shards == {}
    run_driver(words, scratch)
    long_log.assert_same(output)
