"""Random facts of one group over days: incidents of every kind, close together and far apart.

They are rows, not a log: no coordinator acts like this, so rules meet each other in ways that logs rarely
show. `as_of` gives the rows as a walk up to an entry has them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from history.facts.rows import (
    EpochRow,
    GroupRows,
    MemberSession,
    Moved,
    OwnershipSpan,
    SessionEnd,
    SpanKind,
    TermRow,
    TopicPartition,
    Wait,
    WaitEnd,
)
from history.protocols import CLASSIC, CONSUMER
from history.reading.notes import HEARTBEAT_GAP, REFUSED, TROUBLE, Note
from records import Arrival, Cause, Expiry, Phases, Reason, ReasonKind, Trigger
from wire.apis import ApiKey
from wire.errors import ErrorCode

START_MS = 1_700_000_000_000
SECOND = 1_000
PAUSES_MS = (200, 2_000, 4_000, 9_000, 20_000, 60_000, 200_000, 280_000, 1_200_000, 3_500_000, 30_000_000)
PARTITIONS = tuple(TopicPartition(topic="orders", partition=number) for number in range(4))
OVER = {
    SessionEnd.LEFT: 3,
    SessionEnd.SESSION_EXPIRED: 4,
    SessionEnd.REBALANCE_EXPIRED: 1,
    SessionEnd.JOIN_EXPIRED: 1,
    SessionEnd.FORGOTTEN: 0.2,
}


@dataclass
class _Open:
    """A session that has not ended."""

    member_id: str
    process: int
    at: tuple[int, int]
    rejoined: list[tuple[int, int]] = field(default_factory=list)


class RandomFacts:
    """Makes the rows of one group, step by step."""

    def __init__(self, seed: int, steps: int = 400) -> None:
        self.rng = random.Random(seed)
        self.protocol = self.rng.choice((CONSUMER, CONSUMER, CLASSIC))
        self.is_busy = self.rng.random() < 0.5
        self.index, self.ms = 0, START_MS
        self.epochs: list[EpochRow] = []
        self.spans: list[OwnershipSpan] = []
        self.sessions: list[MemberSession] = []
        self.terms: list[TermRow] = []
        self.notes: list[Note] = []
        self.there: dict[str, _Open] = {}
        self.held: dict[TopicPartition, OwnershipSpan] = {}
        self.waits: list[tuple[int, int, int]] = []
        """Positions of waits that end, in their epochs, and the entry from which they do."""
        self.members = 0
        self.pause = PAUSES_MS[0]
        for _ in range(steps):
            self._step()

    def _pass(self) -> tuple[int, int]:
        if self.rng.random() < 0.1:
            self.pause = self.rng.choice(PAUSES_MS[: 9 if self.is_busy else None])
        self.index += self.rng.randint(1, 3)
        self.ms += self.rng.randint(0, self.pause)
        return self.index, self.ms

    def _step(self) -> None:
        rng, at = self.rng, self._pass()
        what = rng.choices(
            (self._join, self._leave, self._move, self._term, self._target, self._note, self._rejoin),
            (5, 5, 6, 0.5, 6, 3, 1),
        )[0]
        what(*at)
        self._end_waits(*at)

    def _end_waits(self, index: int, ms: int) -> None:
        for epoch, number, _ in (one for one in self.waits if one[2] <= index):
            waits = list(self.epochs[epoch].waits)
            waits[number] = replace(waits[number], to_index=index, to_ms=ms, end=WaitEnd.RELEASED)
            self.epochs[epoch] = replace(self.epochs[epoch], waits=tuple(waits))
        self.waits = [one for one in self.waits if one[2] > index]

    def _join(self, index: int, ms: int) -> None:
        rng = self.rng
        process = rng.randrange(5)
        self.members += 1
        old = [one for one in self.sessions if one.client_id == f"app-{process}"]
        member_id = old[-1].member_id if old and rng.random() < 0.3 else f"m{self.members}"
        if member_id in self.there or any(p.process == process for p in self.there.values()):
            return
        self.there[member_id] = _Open(member_id, process, (index, ms))
        self._epoch(index, ms, Reason(kind=ReasonKind.MEMBER_JOINED, member_id=member_id), member_id)

    def _rejoin(self, index: int, ms: int) -> None:
        if self.there:
            self.rng.choice(list(self.there.values())).rejoined.append((index, ms))

    def _leave(self, index: int, ms: int) -> None:
        if not self.there:
            return
        rng = self.rng
        one = self.there.pop(rng.choice(list(self.there)))
        end = rng.choices(list(OVER), list(OVER.values()))[0]
        timeout = rng.choice((10_000, 45_000))
        is_heard = rng.random() < 0.8
        self.sessions.append(
            replace(
                self._session(one),
                to_index=index,
                to_ms=ms,
                end=end,
                timeout_ms=timeout if end is not SessionEnd.LEFT else None,
                last_heartbeat_ms=ms - timeout - 10 if is_heard else None,
                deadline_ms=ms - rng.randint(0, 500),
            )
        )
        for partition, span in list(self.held.items()):
            if span.member_id == one.member_id:
                self._put(partition, SpanKind.UNOWNED, None, index, ms)
        kind = {
            SessionEnd.LEFT: ReasonKind.MEMBER_LEFT,
            SessionEnd.JOIN_EXPIRED: ReasonKind.JOIN_TIMED_OUT,
        }.get(end, ReasonKind.SESSION_EXPIRED)
        self._epoch(index, ms, Reason(kind=kind, member_id=one.member_id), one.member_id, timeout)

    def _session(self, one: _Open) -> MemberSession:
        return MemberSession(
            group_id="g",
            shard=0,
            member_id=one.member_id,
            instance_id=f"i-{one.process}" if one.process < 2 else None,
            client_id=f"app-{one.process}",
            client_host="/10.0.0.1",
            from_index=one.at[0],
            from_ms=one.at[1],
            to_index=None,
            to_ms=None,
            end=SessionEnd.OPEN,
            timeout_ms=None,
            last_heartbeat_ms=None,
            deadline_ms=None,
            rejoins=0,
            aways=(),
            rebalance_timeout_ms=60_000,
            rejoined=tuple(one.rejoined),
            protocol=self.protocol,
        )

    def _epoch(self, index: int, ms: int, reason: Reason, who: str, timeout: int = 0) -> None:
        rng = self.rng
        if self.epochs:
            self.epochs[-1] = replace(self.epochs[-1], end_index=index, end_ms=ms)
        phases = None
        if self.protocol == CLASSIC and rng.random() < 0.6:
            waited = Arrival(rng.choice([*self.there, who]), ms - 200)
            phases = Phases(ms - rng.choice((500, 15_000, 30_000)), ms - 100, (waited,))
        cause = Cause(
            trigger=Trigger.MEMBER_JOINED,
            member_id=who,
            reasons=(reason,),
            expiries=(Expiry(who, timeout, 0, 0, 0),),
            phases=phases,
        )
        self.epochs.append(
            EpochRow(
                group_id="g",
                shard=0,
                epoch=len(self.epochs) + 1,
                epoch_before=len(self.epochs),
                index=index,
                timestamp_ms=ms,
                cause=cause,
                away=(),
                members=tuple(sorted(self.there)),
                target_index=None,
                target_ms=None,
                moves=(),
                progress=(),
                waits=(),
                settled_index=None,
                settled_ms=None,
                state="",
                overtaken_by=None,
                end_index=None,
                end_ms=None,
                protocol=self.protocol,
            )
        )
        if rng.random() < 0.4:
            self._target(index, ms)

    def _target(self, index: int, ms: int) -> None:
        if not self.epochs:
            return
        rng, last = self.rng, self.epochs[-1]
        if last.target_index is None:
            moves = tuple(
                Moved(partition=one, source=None, target=rng.choice([None, *self.there]))
                for one in PARTITIONS
                if rng.random() < 0.6
            )
            self.epochs[-1] = replace(last, target_index=index, target_ms=ms, moves=moves)
        elif last.settled_index is None:
            self.epochs[-1] = replace(last, settled_index=index, settled_ms=ms)

    def _put(
        self, partition: TopicPartition, kind: SpanKind, member_id: str | None, index: int, ms: int
    ) -> None:
        if (before := self.held.get(partition)) is not None:
            if (before.kind, before.member_id) == (kind, member_id):
                return
            self.spans.append(replace(before, to_index=index, to_ms=ms))
        self.held[partition] = OwnershipSpan(
            group_id="g",
            shard=0,
            partition=partition,
            kind=kind,
            member_id=member_id,
            epoch=len(self.epochs),
            from_index=index,
            from_ms=ms,
            to_index=None,
            to_ms=None,
            topic_id="",
        )

    def _move(self, index: int, ms: int) -> None:
        rng = self.rng
        for partition in PARTITIONS:
            span = self.held.get(partition)
            if rng.random() < 0.6 or not self.epochs:
                continue
            kind, who = SpanKind.UNOWNED, None
            if span is not None and span.kind is SpanKind.OWNED and rng.random() < 0.8:
                kind, who = SpanKind.REVOKING, span.member_id
                if len(self.there) > 1:
                    self._wait(partition, who or "", index, ms)
            elif self.there and rng.random() < 0.5:
                kind, who = SpanKind.OWNED, rng.choice(list(self.there))
            self._put(partition, kind, who, index, ms)

    def _wait(self, partition: TopicPartition, holder: str, index: int, ms: int) -> None:
        if self.rng.random() < 0.9:
            self.waits.append((len(self.epochs) - 1, len(self.epochs[-1].waits), index + 5))
        wait = Wait(
            group_id="g",
            epoch=len(self.epochs),
            partition=partition,
            waiter=self.rng.choice(list(self.there)),
            holder=holder,
            from_index=index,
            from_ms=ms,
            told_index=None,
            told_ms=None,
            to_index=None,
            to_ms=None,
            end=WaitEnd.OPEN,
        )
        self.epochs[-1] = replace(self.epochs[-1], waits=(*self.epochs[-1].waits, wait))

    def _term(self, index: int, ms: int) -> None:
        self.terms.append(
            TermRow(
                shard=0,
                term=len(self.terms) + 1,
                index=index,
                timestamp_ms=ms,
                node_id=1,
                previous_leader=2,
                why="EXPIRY",
                is_takeover=True,
                gap_ms=500,
            )
        )

    def _note(self, _: int, ms: int) -> None:
        rng = self.rng
        who = rng.choice([*self.there, "m1"])
        base = {"group": "g", "at_ms": ms, "number": len(self.notes)}
        kind = rng.choice((REFUSED, TROUBLE, HEARTBEAT_GAP))
        if kind == REFUSED:
            is_contested = rng.random() < 0.3
            error = ErrorCode.FENCED_INSTANCE_ID if is_contested else ErrorCode.UNKNOWN_MEMBER_ID
            more = {
                "api": int(ApiKey.OFFSET_COMMIT),
                "error": int(error),
                "member": rng.choice((who, "m1", "m2")),
                "client": "",
                "reason": f"InstanceId i-{rng.randrange(2)} is taken" if is_contested else "",
            }
        elif kind == TROUBLE:
            work = rng.choice(("assign", "assign", "resolve"))
            more = {"work": work, "said": "it failed", "member": rng.choice(("", "", who))}
        else:
            more = {"member": who, "minute_ms": ms, "gap_ms": rng.randint(100, 9_000)}
        for _ in range(rng.choice((1, 1, 3))):
            self.notes.append({**base, "kind": kind, **more, "number": len(self.notes)})

    def rows(self) -> GroupRows:
        """All rows."""
        return GroupRows(
            group_id="g",
            shard=0,
            epochs=tuple(self.epochs),
            spans=tuple(
                sorted([*self.spans, *self.held.values()], key=lambda s: (s.partition, s.from_index, ""))
            ),
            sessions=tuple(
                sorted(
                    [*self.sessions, *map(self._session, self.there.values())],
                    key=lambda s: (s.from_index, s.member_id),
                )
            ),
            terms=tuple(self.terms),
            last_index=self.index + 10,
            last_ms=self.ms,
        )


def as_of(facts: GroupRows, index: int) -> GroupRows:
    """The rows as they were after an entry."""

    def is_over(end: int | None) -> bool:
        return end is not None and end <= index

    def epoch(row: EpochRow) -> EpochRow:
        waits = tuple(
            one if is_over(one.to_index) else replace(one, to_index=None, to_ms=None, end=WaitEnd.OPEN)
            for one in row.waits
            if one.from_index <= index
        )
        row = replace(row, waits=waits)
        if not is_over(row.target_index):
            row = replace(row, target_index=None, target_ms=None, moves=())
        if not is_over(row.settled_index):
            row = replace(row, settled_index=None, settled_ms=None)
        return row if is_over(row.end_index) else replace(row, end_index=None, end_ms=None)

    def session(row: MemberSession) -> MemberSession:
        row = replace(row, rejoined=tuple(one for one in row.rejoined if one[0] <= index))
        if is_over(row.to_index):
            return row
        nothing = {"timeout_ms": None, "last_heartbeat_ms": None, "deadline_ms": None}
        return replace(row, to_index=None, to_ms=None, end=SessionEnd.OPEN, **nothing)

    spans = [one for one in facts.spans if one.from_index <= index]
    return replace(
        facts,
        epochs=tuple(epoch(one) for one in facts.epochs if one.index <= index),
        spans=tuple(
            one if is_over(one.to_index) else replace(one, to_index=None, to_ms=None) for one in spans
        ),
        sessions=tuple(session(one) for one in facts.sessions if one.from_index <= index),
        terms=tuple(one for one in facts.terms if one.index <= index),
        last_index=index,
        last_ms=_newest_ms(facts, index),
    )


def _newest_ms(facts: GroupRows, index: int) -> int:
    times: Sequence[int | None] = [
        *(row.timestamp_ms for row in facts.epochs if row.index <= index),
        *(row.target_ms for row in facts.epochs if (row.target_index or index + 1) <= index),
        *(row.settled_ms for row in facts.epochs if (row.settled_index or index + 1) <= index),
        *(row.from_ms for row in facts.spans if row.from_index <= index),
        *(row.to_ms for row in facts.spans if (row.to_index or index + 1) <= index),
        *(row.to_ms for row in facts.sessions if (row.to_index or index + 1) <= index),
        *(row.timestamp_ms for row in facts.terms if row.index <= index),
        *(wait.to_ms for row in facts.epochs for wait in row.waits if (wait.to_index or index + 1) <= index),
    ]
    return max((one for one in times if one is not None), default=START_MS)
