"""Groups made by hand for `whatif`.  Times in ms from the begin of the story; nothing happens by chance."""

from __future__ import annotations

from typing import Any

from coordinator.limits import GroupSettings
from history.whatif.extract import Extractor
from history.whatif.recorded import Recorded
from tests.support.group_client import Client
from tests.support.world import WALL_START_MS, World
from wire.apis import ApiKey
from wire.errors import ErrorCode

from .members import GROUP, entries_of

UNIFORM, RANGE = ("uniform", "range"), ("range", "uniform")
HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT


class WhatIfStory:
    """A group made by hand: members beat when the story says so."""

    def __init__(self, *, session_ms: int = 10_000, order: tuple[str, ...] = UNIFORM) -> None:
        self.world = World(GroupSettings(session_timeout_ms=session_ms, assignors=order))
        self.begin_ms = self.world.now_ms
        self.notes: list[dict[str, Any]] = []

    def at(self, ms: int) -> WhatIfStory:
        self.world.sleep(self.begin_ms + ms - self.world.now_ms)
        return self

    def client(
        self, name: str, *topics: str, rebalance_ms: int = 60_000, instance: str | None = None
    ) -> Client:
        made = Client(self.world, name, topics=topics or ("orders",), rebalance_timeout_ms=rebalance_ms)
        made.instance_id = instance
        return made

    def keep(self, *clients: Client, from_ms: int, to_ms: int, every_ms: int = 1_000) -> None:
        """These members send heartbeats regularly, the last one at ``to_ms``."""
        for ms in range(from_ms, to_ms + 1, every_ms):
            self.at(ms)
            for client in clients:
                client.beat()

    def wall(self, ms: int) -> int:
        return WALL_START_MS + int(self.begin_ms) + ms

    def refused(
        self, member: str, ms: int, *, owned: dict[str, list[int]] | None = None, api: int = HEARTBEAT
    ) -> None:
        """Note a refused request of a removed member; a heartbeat may name the partitions it owns."""
        note = {"kind": "refused", "group": GROUP, "member": member, "at_ms": self.wall(ms)}
        said = {} if owned is None else {"owned": owned}
        self.notes.append(note | {"api": int(api), "error": int(ErrorCode.UNKNOWN_MEMBER_ID)} | said)

    def gap(self, member: str, ms: int, gap_ms: int) -> None:
        """Note the longest heartbeat gap of the minute that contains ``ms``."""
        at_ms = self.wall(ms)
        note = {"kind": "heartbeat_gap", "group": GROUP, "member": member, "gap_ms": float(gap_ms)}
        self.notes.append(note | {"minute_ms": at_ms - at_ms % 60_000, "at_ms": at_ms})

    def recorded(self, *, has_evidence: bool = False) -> Recorded:
        start = {"kind": "refused", "group": "another", "member": "", "at_ms": self.wall(0)}
        notes = [start, *self.notes] if has_evidence else None
        extractor = Extractor(GROUP, 0, notes)
        for index, at_ms, entry in entries_of(self.world):
            extractor.entry(index, at_ms, entry)
        extractor.passed(self.wall(int(self.world.now_ms - self.begin_ms)))
        return extractor.finish()


def unequal() -> WhatIfStory:
    """Three topics of one partition each, two members: range gives all to one of them."""
    story = WhatIfStory()
    for name in ("orders", "events", "late"):
        story.world.create_topic(name, 1)
    a, b = story.client("a", "orders", "events", "late"), story.client("b", "orders", "events", "late")
    story.keep(a, from_ms=0, to_ms=3_000)
    story.keep(a, b, from_ms=4_000, to_ms=20_000)
    return story
