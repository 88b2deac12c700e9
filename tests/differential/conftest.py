"""Tests that need Apache Kafka bear the marker `java`; where it cannot run they are skipped, and say why."""

from __future__ import annotations

import pytest

from benchmarks.apache import java_is_missing


@pytest.fixture(scope="session")
def kafka_can_run() -> None:
    if reason := java_is_missing():
        pytest.skip(reason)
