"""Evidence of heartbeat gaps before an expiry whose member returned and was noted again."""

from __future__ import annotations

import re

from history.render import UTC_STYLE
from history.telling.explain import explain
from tests.support.incidents.scenarios import INCIDENTS, SESSION_MS
from tests.support.incidents.world import GROUP


def test_the_silence_that_ended_a_session_is_no_gap_before_it() -> None:
    """The silence is noted when the member returns, perhaps in the minute of the expiry."""
    told = 0
    for seed in range(12):
        node = INCIDENTS["one never acknowledges, another is paused"].run(seed).world.node()
        for step in explain(node, GROUP, style=UTC_STYLE).epochs:
            for said in step.evidence:
                told += 1
                found = re.search(r"was (\d+(?:\.\d+)?) s$", said)
                assert found, said
                assert float(found[1]) * 1_000 < SESSION_MS, said
    assert told
