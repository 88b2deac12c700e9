"""The history that clients of a simulated cluster observed, and checks that a correct cluster can produce it.

Each event is recorded as a client knows it, with the times of request and reply. Offsets of a key grow with
each attempt to commit, so that an offset identifies one attempt.

- **Nothing acknowledged is lost**: each acknowledged (key, offset) is in the committed log.
- **No stale read**: a read that was sent after a commit was acknowledged shows that commit, one that was
  sent later, or one without an answer (which may take effect once, at any time).
- **One owner**: a member owns a partition from when its program takes it until it revokes it, learns that it
  is fenced, sends that it leaves, or a session timeout has passed since it sent its last accepted heartbeat.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass

Key = tuple[str, str, int]
"""(group id, topic name, partition)."""

Part = tuple[str, bytes, int]
"""(group id, topic id, partition)."""


@dataclass(slots=True)
class Write:
    """One attempt to commit; `acked_ms` is infinite until, and unless, it is acknowledged."""

    key: Key
    offset: int
    sent_ms: float
    acked_ms: float = math.inf


@dataclass(slots=True)
class ConfigWrite:
    """One attempt to configure a group; no two of one config have the same value. None deletes the config."""

    group_id: str
    name: str
    value: str | None
    sent_ms: float
    acked_ms: float = math.inf


@dataclass(frozen=True, slots=True)
class Read:
    """One answer to OffsetFetch: `found` has the offsets in it by key."""

    group_id: str
    sent_ms: float
    done_ms: float
    found: dict[Key, int]


@dataclass(frozen=True, slots=True)
class Tenure:
    """The time during which a member owned a partition."""

    part: Part
    member_id: str
    begin_ms: float
    end_ms: float


class Ownership:
    """A member's own view of the partitions that it owns."""

    def __init__(self, chronicle: Chronicle, group_id: str, member_id: str, session_ms: float) -> None:
        self._chronicle = chronicle
        self._group_id = group_id
        self._member_id = member_id
        self._session_ms = session_ms
        self._since_ms: dict[Part, float] = {}
        self._valid_until_ms = -math.inf
        self._left_ms = -math.inf

    def accepted(self, sent_ms: float, now_ms: float) -> None:
        """Note at `now_ms` that a heartbeat sent at `sent_ms` was accepted.

        The answer to a heartbeat that was on its way when the member left changes nothing: the coordinator
        may hear the leave next, and give the partitions away."""
        if sent_ms <= self._left_ms:
            return
        if now_ms > self._valid_until_ms:  # its session had run out, and it may go on from here
            self._close(self._valid_until_ms, list(self._since_ms))
            self._since_ms = dict.fromkeys(self._since_ms, now_ms)
        self._valid_until_ms = max(self._valid_until_ms, sent_ms + self._session_ms)

    def left(self, now_ms: float) -> None:
        """Note that the member sends that it leaves."""
        self._left_ms = now_ms
        self._valid_until_ms = min(self._valid_until_ms, now_ms)

    def assigned(self, owned: set[tuple[bytes, int]], now_ms: float) -> None:
        """Note that the member owns exactly these partitions from now on."""
        wanted = {(self._group_id, *part) for part in owned}
        gone = [part for part in self._since_ms if part not in wanted]
        self._close(now_ms, gone)
        for part in gone:
            del self._since_ms[part]
        for part in wanted:
            self._since_ms.setdefault(part, now_ms)

    def finish(self) -> None:
        """End all ownership, as the run is over."""
        self.assigned(set(), math.inf)

    def _close(self, end_ms: float, parts: list[Part]) -> None:
        for part in parts:
            end = min(end_ms, self._valid_until_ms)
            self._chronicle.tenures.append(Tenure(part, self._member_id, self._since_ms[part], end))


class Chronicle:
    """The records of all clients of one run."""

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.reads: list[Read] = []
        self.tenures: list[Tenure] = []
        self.configs: list[ConfigWrite] = []
        self.unexpected: Counter[tuple[str, int]] = Counter()
        """Counts of error codes that clients do not handle, by client and code."""
        self._next_offset: defaultdict[Key, int] = defaultdict(int)

    def begin(self, key: Key, now_ms: float) -> Write:
        """Record an attempt to commit, and give it its own offset."""
        self._next_offset[key] += 1
        write = Write(key, self._next_offset[key], now_ms)
        self.writes.append(write)
        return write

    def configure(self, group_id: str, name: str, least: int, now_ms: float) -> ConfigWrite:
        """Record an operator's attempt to set a config of a group."""
        write = ConfigWrite(group_id, name, str(least + len(self.configs)), now_ms)
        self.configs.append(write)
        return write

    def lost_configs(self, committed: set[tuple[str, str, str | None]]) -> list[str]:
        """Return acknowledged values that the log lacks; a deletion may leave no record."""
        return [
            f"{write.name} = {write.value} of {write.group_id}, acknowledged, is not in the log"
            for write in self.configs
            if write.acked_ms < math.inf
            and write.value is not None
            and (write.group_id, write.name, write.value) not in committed
        ]

    def read(self, group_id: str, sent_ms: float, done_ms: float, found: dict[Key, int]) -> None:
        """Record an answer with a group's offsets."""
        self.reads.append(Read(group_id, sent_ms, done_ms, found))

    @property
    def acknowledged(self) -> list[Write]:
        return [write for write in self.writes if write.acked_ms < math.inf]

    def lost(self, committed: set[tuple[Key, int]]) -> list[str]:
        """Return acknowledged commits that the log lacks."""
        return [
            f"{write.key} {write.offset}, acknowledged at {write.acked_ms:.1f} ms, is not in the log"
            for write in self.acknowledged
            if (write.key, write.offset) not in committed
        ]

    def old_reads(self) -> list[str]:
        """Return reads that show less than was acknowledged before they were sent."""
        by_offset = {(write.key, write.offset): write for write in self.writes}
        newest: defaultdict[Key, tuple[list[float], list[Write]]] = defaultdict(lambda: ([], []))
        for write in sorted(self.acknowledged, key=lambda one: one.acked_ms):
            times, best = newest[write.key]
            times.append(write.acked_ms)
            best.append(write if not best or write.offset > best[-1].offset else best[-1])
        found = []
        for read in self.reads:
            for key, (times, best) in newest.items():
                place = bisect_left(times, read.sent_ms) - 1
                if key[0] != read.group_id or place < 0:
                    continue
                due = best[place]
                shown = by_offset.get((key, read.found.get(key, -1)))
                if shown is None or (shown.acked_ms < due.sent_ms and shown.offset < due.offset):
                    what = "nothing" if shown is None else f"{shown.offset}"
                    found.append(
                        f"a read of {key} sent at {read.sent_ms:.1f} ms shows {what}, though {due.offset} "
                        f"was acknowledged at {due.acked_ms:.1f} ms"
                    )
                elif shown.sent_ms > read.done_ms:
                    found.append(f"a read of {key} shows {shown.offset}, which nobody had sent yet")
        return found

    def double_owners(self) -> list[str]:
        """Return partitions that two members owned at the same time."""
        by_part: defaultdict[Part, list[Tenure]] = defaultdict(list)
        for tenure in self.tenures:
            if tenure.end_ms > tenure.begin_ms:
                by_part[tenure.part].append(tenure)
        found = []
        for part, tenures in by_part.items():
            tenures.sort(key=lambda one: one.begin_ms)
            for one, other in itertools.pairwise(tenures):
                if other.begin_ms < one.end_ms and other.member_id != one.member_id:
                    found.append(
                        f"{part[0]} {part[2]} was owned by {one.member_id} until {one.end_ms:.1f} ms and by "
                        f"{other.member_id} from {other.begin_ms:.1f} ms"
                    )
        return found
