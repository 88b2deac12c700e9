"""Tests that need Apache Kafka have the marker `java`; they are skipped where it cannot run."""

from __future__ import annotations

import pytest

from benchmarks.apache import java_is_missing


@pytest.fixture(scope="session")
def kafka_can_run() -> None:
    if reason := java_is_missing():
        pytest.skip(reason)
