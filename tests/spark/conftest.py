"""Fixtures of this folder: answers and tables that were made on this machine, to compare others with."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.mixedlog import write_life
from tests.support.recorded_incident import INCIDENT
from tests.support.table_sets import RowSets, except_all, row_sets

from .drivers import JOB, run_driver

RECORDS = 140_000
"""Their 55,000 entries are too many for a driver's own process, and so are the 31,000 records of groups."""


@dataclass(frozen=True)
class LongLog:
    """A log whose runs need Spark, and the rows that a run in one process makes of it."""

    path: Path
    rows: RowSets

    def assert_same(self, output: Path) -> None:
        assert except_all(row_sets(output), self.rows) == {}


@pytest.fixture(scope="session", autouse=True)
def needs_spark() -> None:
    pytest.importorskip("pyspark", reason="needs the extra spark")
    from quorate.spark.errors import NoSpark
    from quorate.spark.session.java import find_java

    try:
        find_java()
    except NoSpark as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def local_answer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The answer of job.py on ``local[2]``."""
    return job_answer("local[2]", tmp_path_factory.mktemp("local"))


@pytest.fixture(scope="session")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> LongLog:
    from quorate.spark.runs import facts, ingest
    from quorate.spark.runs.run import run

    home = tmp_path_factory.mktemp("long")
    written = write_life(str(home / "node"), RECORDS, shards=2, days=60, seed=6).written
    assert sum(one.entries for one in written) > ingest.LITTLE_ENTRIES
    with pytest.MonkeyPatch.context() as patched:
        for module, name in ((ingest, "LITTLE_ENTRIES"), (facts, "LITTLE_RECORDS")):
            patched.setattr(module, name, RECORDS)
        run(_no_spark, str(home / "node"), str(home / "tables"))
    return LongLog(home / "node", row_sets(home / "tables"))


def _no_spark(size: int) -> Any:
    raise AssertionError("this process does it itself")


def job_answer(master: str, scratch: Path, **more: str) -> Any:
    """Run job.py on the recorded incident on ``master`` and return its answer; it may print nothing else."""
    done = run_driver([sys.executable, JOB, master, INCIDENT], scratch, more)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == 1, done.stdout
    return json.loads(lines[0])
