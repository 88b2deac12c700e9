"""History tells a group that changes its protocol twice."""

from __future__ import annotations

import pytest

from coordinator.limits import Limits
from history.render import UTC_STYLE
from history.telling.explain import explain
from history.telling.filters import Filters
from history.telling.prose import explanation_text
from history.whatif.answer import whatif_of
from history.whatif.extract import MIXED
from history.whatif.settings import WhatIf
from tests.support.embedded_member import EmbeddedConsumer, settled
from tests.support.group_client import Client
from tests.support.incidents.world import GROUP, IncidentWorld


@pytest.fixture
def world() -> IncidentWorld:
    """Two classic members, one of the consumer protocol that joins and leaves them."""
    world = IncidentWorld(1, limits=Limits(serves_classic=True), heartbeat_interval_ms=1_000)
    world.create_topic("orders", 6)
    classic = [EmbeddedConsumer(world, name, group_id=GROUP) for name in ("a", "b")]
    settled(world, *classic)
    world.sleep(1_000)
    consumer = Client(world, "c", group_id=GROUP)
    settled(world, *classic, consumer)
    world.sleep(1_000)
    consumer.leave()
    settled(world, *classic)
    return world


def test_the_changes_of_protocol_are_explained(world: IncidentWorld) -> None:
    text = "\n".join(
        explanation_text(explain(world.node(), GROUP, filters=Filters(), style=UTC_STYLE), UTC_STYLE)
    )
    for line in (
        "because   the group moved from the classic to the consumer protocol with c (client",
        "because   c (client client, 127.0.0.1) joined",
        "because   the group moved back to the classic protocol, which all members speak now",
        "because   c (client client, 127.0.0.1) left",
        "waited    0 ms for members to join",
    ):
        assert line in text, text
    assert "findings:" not in text, "nothing went wrong"


def test_such_a_group_is_not_replayed_under_other_settings(world: IncidentWorld) -> None:
    (result,) = whatif_of(world.node(), WhatIf(), GROUP).results
    assert result.left_out == MIXED
