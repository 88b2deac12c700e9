"""A real standalone cluster: a master and two workers of one core each, on loopback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import job_answer
from .daemons import standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

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
