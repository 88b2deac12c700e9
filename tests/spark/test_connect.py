"""Spark Connect: no context and no JVM on this side, code shipped as an artifact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import job_answer
from .daemons import connect_server

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


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
