"""Spark Connect: no context and no JVM on this side, code shipped as an artifact."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import LongLog, job_answer
from .daemons import connect_server
from .drivers import run_driver

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("grpc", reason="needs pyspark[connect]")
    with connect_server(tmp_path_factory.mktemp("connect")) as url:
        yield url


def test_a_server_reads_a_log_with_the_code_that_was_shipped(
    server: str, tmp_path: Path, local_answer: Any
) -> None:
    answer = job_answer(server, tmp_path)
    assert answer["digest"] == local_answer["digest"]
    assert answer["twice"] == local_answer["twice"]
    assert all(".zip/coordinator/" in file for file in answer["files"])
    assert answer["failure"] == "InputError('this log is damaged; copy it again', '')"


def test_a_run_through_it_makes_the_tables_that_one_process_makes(
    server: str, long_log: LongLog, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "quorate", "pipeline", "run", "--master", server]
    asked = ["--input", long_log.path, "--output", "tables", "--report", "report.html"]
    run_driver([*command, *asked], tmp_path)
    long_log.assert_same(tmp_path / "tables")
    assert "</html>" in (tmp_path / "report.html").read_text()


def test_a_setting_that_a_server_does_not_take_is_refused(
    server: str, long_log: LongLog, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "quorate", "pipeline", "run", "--master", server]
    asked = ["--driver-memory", "1g", "--input", long_log.path, "--output", "tables"]
    done = run_driver([*command, *asked], tmp_path, exit_code=1)
    assert "spark.driver.memory" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
