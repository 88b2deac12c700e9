"""`whatif` without a change: a replay of each incident under the recorded settings equals the record."""

from __future__ import annotations

import pytest

from history.whatif.answer import whatif_of
from history.whatif.settings import WhatIf
from tests.support.incidents.scenarios import INCIDENTS
from tests.support.incidents.world import GROUP

from .quiet import QUIET

PLAYS = INCIDENTS | QUIET
SEED = 300
CLASSIC = (
    "group that waits for one member again and again",
    "member that does not join again",
    "member that does not sync",
    "rolling joins and restarts of a classic group",
)
DIFFERENT = {
    "assignor that raises": "its targets came late or never",
    "assignor that hangs": "its targets came late or never",
    "client-side assignor that lets its time pass": "members computed the targets",
    "members that compute": "members computed the targets",
    "an assignor of a user that takes its time": "no assignor of ours",
    **dict.fromkeys(CLASSIC, "a client assigned the partitions"),
}
"""Known limits that docs/history.md names, with the reason of each."""


@pytest.mark.parametrize("name", sorted(PLAYS.keys() - DIFFERENT.keys()))
def test_an_incident_replayed_under_its_own_settings_is_itself(name: str) -> None:
    (result,) = whatif_of(PLAYS[name].run(SEED).world.node(), WhatIf(), GROUP).results
    assert not result.left_out
    assert result.replayed == result.really


@pytest.mark.parametrize("name", sorted(DIFFERENT))
def test_what_cannot_be_replayed_says_so(name: str) -> None:
    (result,) = whatif_of(PLAYS[name].run(SEED).world.node(), WhatIf(), GROUP).results
    assert result.left_out or not result.is_faithful
