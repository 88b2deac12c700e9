"""Fixtures of this folder: the answers of a driver on this machine, to compare others with."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.recorded_incident import INCIDENT
from tests.support.table_rows import exported, held

from .drivers import JOB, run_driver


@pytest.fixture(scope="session", autouse=True)
def needs_spark() -> None:
    pytest.importorskip("pyspark", reason="needs the extra spark")
    from pipeline.errors import NoSpark
    from pipeline.session.java import find_java

    try:
        find_java()
    except NoSpark as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def local_answer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The answer of job.py on ``local[2]``."""
    return job_answer("local[2]", tmp_path_factory.mktemp("local"))


def assert_is_history(output: Path) -> None:
    """Check that the tables of the recorded incident have history's rows, one table at a time."""
    for name, rows in exported(INCIDENT).items():
        assert held(output, name)[name] == rows, name


def job_answer(master: str, scratch: Path, **more: str) -> Any:
    """Run job.py on the recorded incident on ``master`` and return its answer; it may print nothing else."""
    done = run_driver([sys.executable, JOB, master, INCIDENT], scratch, more)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == 1, done.stdout
    return json.loads(lines[0])
