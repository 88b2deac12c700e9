"""The partitions that are fetched, and the position at which each fetch goes on.

A partition begins at a given offset, at the committed one, or by auto.offset.reset; `TRANSITIONS` has the
states in between. Each beginning and each seek has a version, which the application side chose. It comes back
with positions and with fetched data, so that what belongs to an earlier position is recognised.

Beginnings make new `PartitionPosition`s. An answer that an earlier one has asked for is recognised by
`FetchPositions.is_current`, and dropped.

A position carries the leader epoch of the record before it, also when it is committed, and a Fetch names it.
So a leader whose log parts from what was read, as after an unclean election, says where (KIP-320): reading
goes on there. That takes no request of its own, unlike OffsetForLeaderEpoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Any, Final

from client.core.backoff import Backoff, retry_backoff
from client.core.committed import CommittedManager
from client.core.env import Environment
from client.core.errors import NoOffset, PositionOutOfRange, TimedOut
from client.core.events import (
    AssignEvent,
    BackgroundEvent,
    ErrorEvent,
    PauseEvent,
    PositionsEvent,
    SeekEvent,
)
from client.core.list_offsets import ListOffsetsManager
from client.core.requests import FOREVER, NOTHING, PollResult
from client.core.setting_kinds import reset_duration_ms
from client.core.settings import ConsumerSettings
from client.core.types import (
    FIRST_OFFSET,
    LAST_OFFSET,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Position,
    TopicPartition,
)

_log = logging.getLogger("quorate.consumer")

RESET_TIMESTAMPS: Final = {"earliest": FIRST_OFFSET, "latest": LAST_OFFSET}
"""The timestamp that ListOffsets is asked for, by auto.offset.reset; "none" has none, by_duration its own."""


class FetchState(Enum):
    """A state of a partition; the value is what it waits for before it is fetched."""

    INITIALIZING = "the committed offset"
    AWAIT_RESET = "the first or last offset, or that of a time"
    FETCHING = "nothing: it has a position"
    AWAIT_SEEK = "seek(), as there is no offset to begin at and auto.offset.reset is none"


class PositionEvent(Enum):
    """A cause of a transition."""

    COMMITTED = "there is a committed offset"
    NOT_COMMITTED = "there is none, and auto.offset.reset names one"
    RESET = "the leader told the offset"
    FETCHED = "records arrived"
    OUT_OF_RANGE = "the log does not have the offset, and auto.offset.reset names another"
    DIVERGED = "the leader's log has other records before the offset, and auto.offset.reset is not none"
    NO_RESET = "auto.offset.reset is none"


_S, _E = FetchState, PositionEvent

TRANSITIONS: Final[dict[tuple[FetchState, PositionEvent], FetchState]] = {
    (_S.INITIALIZING, _E.COMMITTED): _S.FETCHING,
    (_S.INITIALIZING, _E.NOT_COMMITTED): _S.AWAIT_RESET,
    (_S.INITIALIZING, _E.NO_RESET): _S.AWAIT_SEEK,
    (_S.AWAIT_RESET, _E.RESET): _S.FETCHING,
    (_S.FETCHING, _E.FETCHED): _S.FETCHING,
    (_S.FETCHING, _E.OUT_OF_RANGE): _S.AWAIT_RESET,
    (_S.FETCHING, _E.DIVERGED): _S.FETCHING,
    (_S.FETCHING, _E.NO_RESET): _S.AWAIT_SEEK,
}
"""The next state. assign() and seek() begin anew, in INITIALIZING, AWAIT_RESET or FETCHING."""

_SOUGHT: Final = (_S.INITIALIZING, _S.AWAIT_RESET)
"""The states of a partition whose first offset another manager is asked for."""


class PartitionPosition:
    """A partition since its last beginning or seek."""

    __slots__ = (
        "failures",
        "is_asked",
        "is_damaged",
        "is_paused",
        "next_ms",
        "partition",
        "position",
        "read_replica",
        "reset_timestamp",
        "state",
        "told_end",
    )

    def __init__(
        self, partition: TopicPartition, version: int, offset: int | None, *, is_paused: bool = False
    ) -> None:
        self.partition = partition
        self.is_paused = is_paused
        self.position = Position(max(offset or 0, 0), -1, version)
        """The position at which the next fetch begins; meaningful in FETCHING only."""
        self.reset_timestamp = offset if offset is not None and offset < 0 else 0
        """The timestamp that ListOffsets is asked for in AWAIT_RESET."""
        self.is_asked = False
        """Whether a request for it has no answer yet."""
        self.is_damaged = False
        """Whether the next batch cannot be read; the application side says so, until it seeks."""
        self.next_ms = 0.0
        """No request for it leaves before."""
        self.failures: Backoff | None = None
        """The back-off of its fetches, since the last success."""
        self.read_replica: tuple[int, float] | None = None
        """The follower to fetch from, and until when (KIP-392)."""
        self.told_end: tuple[int, int] | None = None
        """The high watermark and the last stable offset that the application side knows."""
        if offset is None:
            self.state = FetchState.INITIALIZING
        else:
            self.state = FetchState.AWAIT_RESET if offset < 0 else FetchState.FETCHING

    def go(self, event: PositionEvent) -> None:
        """Change the state by the table."""
        self.state = TRANSITIONS[self.state, event]

    def move(self, event: PositionEvent, offset: int, leader_epoch: int) -> None:
        """Change the state, and fetch from an offset from now on."""
        self.go(event)
        self.position = Position(offset, leader_epoch, self.position.version)


class FetchPositions:
    """All partitions that are fetched, in the order in which they are asked for."""

    def __init__(
        self,
        settings: ConsumerSettings,
        env: Environment,
        emit: Callable[[BackgroundEvent], None],
        want_topics: Callable[[Collection[str]], None],
    ) -> None:
        self._reset = settings.auto_offset_reset
        self._reset_before_ms = reset_duration_ms(settings.auto_offset_reset)
        self._wall_ms = env.wall_ms
        self._emit = emit
        self._want_topics = want_topics
        self._partitions: dict[TopicPartition, PartitionPosition] = {}

    def __iter__(self) -> Iterator[PartitionPosition]:
        return iter(self._partitions.values())

    def is_current(self, one: PartitionPosition) -> bool:
        """Whether a partition has neither ended nor begun anew."""
        return self._partitions.get(one.partition) is one

    def begin(self, partitions: Mapping[TopicPartition, int | None], version: int) -> None:
        """Fetch these: from an offset, the first (−2) or last (−1) one, or None: the committed one."""
        for partition, offset in partitions.items():
            earlier = self._partitions.get(partition)
            is_paused = earlier is not None and earlier.is_paused
            self._partitions[partition] = PartitionPosition(partition, version, offset, is_paused=is_paused)
        self._want_topics({partition.topic for partition in partitions})
        self._tell(partitions)

    def end(self, partitions: Collection[TopicPartition]) -> None:
        """Fetch these no more. What is fetched of them already, the application side drops."""
        for partition in partitions:
            self._partitions.pop(partition, None)

    def assign(self, event: AssignEvent, now_ms: float) -> None:
        """Handle ASSIGN: fetch these partitions and no others."""
        self.end([partition for partition in self._partitions if partition not in event.partitions])
        self.begin(event.partitions, event.version)

    def seek(self, event: SeekEvent, now_ms: float) -> None:
        """Handle SEEK; a partition that has ended meanwhile is left out."""
        known = {
            partition: offset
            for partition, offset in event.positions.items()
            if partition in self._partitions
        }
        self.begin(known, event.version)

    def pause(self, event: PauseEvent, now_ms: float) -> None:
        """Handle PAUSE."""
        for partition in event.partitions & self._partitions.keys():
            self._partitions[partition].is_paused = not event.resumes

    def rotate(self, one: PartitionPosition) -> None:
        """Ask for the others first from now on (KIP-74)."""
        self._partitions[one.partition] = self._partitions.pop(one.partition)

    def committed(self, one: PartitionPosition, offset: OffsetAndMetadata | None) -> None:
        """Begin at the committed offset; without one, by auto.offset.reset."""
        if offset is not None:
            one.move(PositionEvent.COMMITTED, offset.offset, offset.leader_epoch)
            self._tell((one.partition,))
        elif self._await_reset(one, PositionEvent.NOT_COMMITTED) is None:
            self._emit(
                ErrorEvent(
                    error=NoOffset(
                        f"{_name(one)} has no committed offset, and auto.offset.reset is none: seek() to one"
                    )
                )
            )

    def reset(self, one: PartitionPosition, offset: OffsetAndTimestamp) -> None:
        """Begin at the offset that the leader answered."""
        one.move(PositionEvent.RESET, offset.offset, offset.leader_epoch)
        self._tell((one.partition,))

    def fetched(self, one: PartitionPosition, offset: int, leader_epoch: int) -> None:
        """Go on after records that arrived."""
        one.move(PositionEvent.FETCHED, offset, leader_epoch)

    def out_of_range(self, one: PartitionPosition) -> None:
        """Begin by auto.offset.reset, because the log does not have the position."""
        words = f"{_name(one)} has no offset {one.position.offset}"
        if self._await_reset(one, PositionEvent.OUT_OF_RANGE) is None:
            words += ", and auto.offset.reset is none: seek() to an offset that it has"
            self._emit(ErrorEvent(error=PositionOutOfRange(words)))
        else:
            _log.warning("%s. It is read from where auto.offset.reset=%s says", words, self._reset)

    def diverged(self, one: PartitionPosition, offset: int, leader_epoch: int) -> None:
        """Go on at the first offset that the leader's log has otherwise; `leader_epoch` is the one before."""
        read_to = one.position.offset
        words = f"the log of {_name(one)} was truncated to offset {offset}, and was read to {read_to}"
        if self._reset == "none":
            one.go(PositionEvent.NO_RESET)
            words += "; auto.offset.reset is none: seek() to go on"
            self._emit(ErrorEvent(error=PositionOutOfRange(words)))
        else:
            one.move(PositionEvent.DIVERGED, offset, leader_epoch)
            _log.warning("%s. It is read from there", words)
            self._tell((one.partition,))

    def _await_reset(self, one: PartitionPosition, event: PositionEvent) -> int | None:
        """Ask for the offset of auto.offset.reset. Returns its timestamp, None if that is none."""
        timestamp = RESET_TIMESTAMPS.get(self._reset)
        if self._reset_before_ms is not None:
            timestamp = max(self._wall_ms() - self._reset_before_ms, 0)
        one.go(PositionEvent.NO_RESET if timestamp is None else event)
        one.reset_timestamp = timestamp or 0
        return timestamp

    def _tell(self, partitions: Collection[TopicPartition]) -> None:
        """Tell the application side the positions of those that have one."""
        known = {
            partition: one.position
            for partition in partitions
            if (one := self._partitions[partition]).state is FetchState.FETCHING
        }
        if known:
            self._emit(PositionsEvent(positions=known))


def _name(one: PartitionPosition) -> str:
    return f"partition {one.partition.partition} of topic {one.partition.topic!r}"


class PositionManager:
    """Finds the offsets at which partitions begin. It is polled before the managers that it asks."""

    def __init__(
        self,
        settings: ConsumerSettings,
        env: Environment,
        positions: FetchPositions,
        committed: CommittedManager | None,
        offsets: ListOffsetsManager,
        emit: Callable[[BackgroundEvent], None],
    ) -> None:
        self._timeout_ms = settings.request_timeout_ms
        self._now_ms = env.now_ms
        self._positions = positions
        self._committed = committed
        """The manager of committed offsets, None without a group."""
        self._offsets = offsets
        self._emit = emit
        self._failing = retry_backoff(settings, env)

    def poll(self, now_ms: float) -> PollResult:
        """Ask the other managers; they make the requests."""
        if not [one for one in self._positions if one.state in _SOUGHT and not one.is_asked]:
            return NOTHING
        if waiting := self._waiting(FetchState.INITIALIZING, now_ms):
            then = partial(self._ended, waiting, self._positions.committed)
            if self._committed is None:
                then({}, None)
            else:
                self._committed.fetch(frozenset(waiting), then, now_ms + self._timeout_ms)
        if waiting := self._waiting(FetchState.AWAIT_RESET, now_ms):
            timestamps = {partition: one.reset_timestamp for partition, one in waiting.items()}
            then = partial(self._ended, waiting, self._begin_by_time)
            self._offsets.fetch(timestamps, then, now_ms + self._timeout_ms)
        later = [one.next_ms for one in self._positions if one.state in _SOUGHT and not one.is_asked]
        return PollResult((), max(min(later, default=FOREVER) - now_ms, 0.0))

    def _waiting(self, state: FetchState, now_ms: float) -> dict[TopicPartition, PartitionPosition]:
        """Return the partitions in a state that nobody has been asked about, and note that they are."""
        found = {
            one.partition: one
            for one in self._positions
            if one.state is state and not one.is_asked and one.next_ms <= now_ms
        }
        for one in found.values():
            one.is_asked = True
        return found

    def _ended(
        self,
        asked: Mapping[TopicPartition, PartitionPosition],
        take: Callable[[PartitionPosition, Any], None],
        result: Any,
        error: Exception | None,
    ) -> None:
        """Give each partition its answer, or let it ask again; a time-out alone is no news."""
        current = [one for one in asked.values() if self._positions.is_current(one)]
        again_ms = self._now_ms() + self._failing.next_ms() if error is not None else 0.0
        for one in current:
            one.is_asked = False
            one.next_ms = again_ms
        if error is None:
            self._failing.reset()
            for one in current:
                take(one, result.get(one.partition))
        elif current and not isinstance(error, TimedOut):
            self._emit(ErrorEvent(error=error))

    def _begin_by_time(self, one: PartitionPosition, offset: OffsetAndTimestamp | None) -> None:
        if offset is None:
            one.reset_timestamp = LAST_OFFSET  # no record is as late
        else:
            self._positions.reset(one, offset)
