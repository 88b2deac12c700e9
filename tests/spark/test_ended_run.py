"""`quorate pipeline run` stopped while Spark works: it leaves nothing, and the next run starts over."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.mixedlog import write_log
from pipeline.tables import Output, read_manifest
from tests.report import count_fault
from tests.support.table_rows import exported, held
from tests.support.waiting import wait_for

from .drivers import run_driver, start_driver

pytestmark = pytest.mark.spark

RECORDS = 150_000
"""More than a run writes in its own process; a tenth of them exceeds its limit for facts, too."""
WAIT_S = 200.0
"""Far more than needed, for an overloaded machine."""
SIGTERM_CODE = 143
UNDER_WAY = {
    "records": "job-0/_temporary",
    "facts": "facts/_temporary",
}
"""A path that exists in a run's folder while Spark writes, by stage."""


@contextmanager
def started(words: list[str | Path], scratch: Path) -> Iterator[subprocess.Popen[str]]:
    process = start_driver(words, scratch)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.timeout(900)
def test_a_run_that_is_ended_while_spark_works_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    log, output, scratch = tmp_path / "node", tmp_path / "tables", tmp_path / "scratch"
    scratch.mkdir()
    write_log(str(log), RECORDS, groups=200, segment_bytes=4 << 20)
    words: list[str | Path] = [sys.executable, "-m", "quorate", "pipeline", "run", "--master", "local[2]"]
    words += ["--input", log, "--output", output, "--driver-memory", "1g"]
    words += ["--conf", "spark.sql.shuffle.partitions=2"]
    staging = output / "_quorate" / "staging"
    for stage, sign in UNDER_WAY.items():
        with started(words, scratch) as process:
            wait_for(
                lambda process=process, sign=sign: (
                    any(staging.glob(f"*/{sign}")) or process.poll() is not None
                ),
                f"Spark writes {stage}",
                WAIT_S,
            )
            count_fault("spark", "run ended")
            process.terminate()
            _, said = process.communicate(timeout=WAIT_S)
        assert process.returncode == SIGTERM_CODE, f"{stage}\n{said}"
        assert said.splitlines()[-1] == "stopped: the tables are as of the last commit", stage
        assert "Traceback" not in said
        assert read_manifest(output).files == ()
        assert list(output.rglob("*.parquet")) == [], stage
        with Output.open(output, cluster_id="bench") as free:
            assert free.manifest.progress == {}
    run_driver(words, scratch)
    assert held(output) == exported(log)
