"""Plays the scripts of some seeds, and all regressions, to Apache Kafka and to Quorate.

`make differential` plays more, from new seeds each time.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential.__main__ import compared
from tests.differential.generating import generate_each
from tests.differential.kept import regressions, scenarios
from tests.differential.run import servers

SEEDS = range(150)


@pytest.mark.java
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("kafka_can_run")
async def test_both_sides_answer_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every reply agrees field by field; accepted differences occur in at most one of fifty replies."""
    scripts = [*regressions(), *scenarios()]
    for seed in SEEDS:
        scripts += generate_each(seed)
    with servers(tmp_path) as both:
        code = await compared(both, scripts)
    assert code == 0, capsys.readouterr().out
