"""A log that grows between runs: real decisions, small segments that get sealed and archived on the way."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from raftlog.env.settings import LogSettings
from tests.support.disk_node import DiskNode, GroupMember

SMALL_SEGMENTS = LogSettings(snapshot_tail_records=200, segment_bytes=16_384)
GROUPS = ("billing", "mail", "search")
STEPS = 50
"""Steps in a chapter: enough for shard 0 to fill a segment."""


@dataclass
class Story:
    """Members of three groups join, commit, leave and die; the same seed repeats the same story."""

    path: str
    seed: int = 3
    members: list[GroupMember] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.node = DiskNode(self.path, num_shards=2, log=SMALL_SEGMENTS)
        self.node.create_topic("orders", 6)

    def chapter(self) -> None:
        for _ in range(STEPS):
            self._step()

    def restart(self) -> None:
        """Restart the node: its term ends with the last entry, and a new one begins."""
        self.node.stop()
        self.node.start()

    def _step(self) -> None:
        rng, members = self.rng, self.members
        what = rng.choices(["join", "leave", "die", "commit", "wait"], [2, 1, 1, 5, 6])[0]
        if what == "join" or not members:
            app = f"app-{rng.randint(1, 9)}"
            members.append(self.node.member(rng.choice(GROUPS), app, "orders").join())
        elif what == "leave":
            members.pop(rng.randrange(len(members))).leave()
        elif what == "die":
            members.pop(rng.randrange(len(members)))
        elif what == "commit":
            for member in members:
                member.commit({partition: rng.randint(0, 1_000) for partition in range(3)})
        else:
            self.node.pass_ms(rng.randint(100, 2_500), *members)
