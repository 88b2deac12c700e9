"""kafka-features: an administrator's view of the cluster's features."""

from __future__ import annotations

from tests.java.toolbox import FEATURES, Tools


def test_the_consumer_protocol_is_on_and_said_so(tools: Tools) -> None:
    said = tools.run(FEATURES, "describe").split()
    told = dict(zip(said[::2], said[1::2], strict=True))
    assert told == {
        "Feature:": "group.version",
        "SupportedMinVersion:": "1",
        "SupportedMaxVersion:": "1",
        "FinalizedVersionLevel:": "1",
        "Epoch:": "0",
    }
