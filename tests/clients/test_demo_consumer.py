"""The demo's consumer in a rare race: an assignment arrives while it closes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.launching.launcher import NodeProcess
from quorate.demo.consumer import CommittingConsumer, EventJournal
from quorate.demo.watch import see_group, wait_until

NUM_PARTITIONS = 12
CLOSE_S_MAX = 2.0
"""A close takes milliseconds; one that waits for `committed` takes COMMITTED_TIMEOUT_S, 5 s."""


def test_an_assignment_while_it_closes_does_not_hold_up_the_leave(
    node: NodeProcess, bootstrap: str, group: str, new_topic: Callable[[int], str], tmp_path: Path
) -> None:
    topic = new_topic(NUM_PARTITIONS)
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": "consumer",
        "enable.auto.commit": False,
    }
    with (tmp_path / "journal").open("w", encoding="utf-8") as file:
        members = [
            CommittingConsumer({**config, "client.id": f"member-{number}"}, topic, EventJournal(file))
            for number in range(2)
        ]
        for member in members:
            member.subscribe()

        def shared(_elapsed_s: float) -> bool:
            for member in members:
                member.poll()
            return all(len(member.owned) == NUM_PARTITIONS // 2 for member in members)

        wait_until("sharing the topic", shared, 15.0)
        stays, leaves = members
        leaves.close()

        def has_all(_elapsed_s: float) -> bool:  # without a poll: the assignment waits in the client
            seen = see_group([node.url], group, topic)
            member = seen.members.get("member-0") if seen else None
            return member is not None and len(member.partitions) == NUM_PARTITIONS

        wait_until("the rest of the topic for the member that stays", has_all, 15.0)
        started_s = time.monotonic()
        stays.close()
        assert time.monotonic() - started_s < CLOSE_S_MAX
