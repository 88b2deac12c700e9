"""What goes into a shard and what comes out of it.

The shard is pure: time, ids, the catalog and the settings reach it in a `Context`, and everything that it
decided leaves it in an `Outcome`. A handler is a generator of *steps*: each step yields the records it wants
to write, the shard applies them at once, and the next step sees the projection as it is then. What the
generator returns is the reply. All records of all steps are one entry with one cause.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import StrEnum

from coordinator.limits import SettingsView
from coordinator.topics import CatalogView
from records import Cause, Expiry, RawRecord, Reason, ReasonKind, Ref, TopicPartitions
from wire.errors import ErrorCode

MESSAGE_CHARS_MAX = 2_000
"""Of a refusal: a page of text, also where a name of 32 KB is refused. Kafka's older strings end at 32,767
bytes, so that more could not be answered."""


def _no_clock() -> float:
    return 0.0


@dataclass(slots=True, kw_only=True)
class Context:
    """What pure code needs from outside for one decision.

    `monotonic_ms` drives timers, `wall_ms` only goes into records. `settled_ms` tells a moment that has
    certainly passed, whatever clocks say; None if that is `wall_ms`. `next_index` is the index that this
    decision's entry will have. `turn` numbers the turns of the loop (a group computes at most one target in
    each; 0 means that every decision is a turn of its own). `stopwatch_ms` measures what a target costs.
    """

    monotonic_ms: float
    wall_ms: int
    next_index: int
    catalog: CatalogView
    settings: SettingsView
    fresh_id: Callable[[], str]
    fresh_uuid: Callable[[], bytes]
    settled_ms: Callable[[], int] | None = None
    stopwatch_ms: Callable[[], float] = _no_clock
    turn: int = 0
    client_id: str = ""
    client_host: str = ""
    principal: str = ""

    @property
    def past_ms(self) -> int:
        """The time by which retention is judged: one wrong clock must delete nothing."""
        return self.wall_ms if self.settled_ms is None else min(self.settled_ms(), self.wall_ms)


class JobKind(StrEnum):
    """What child processes do for a group."""

    ASSIGN = "assign"
    RESOLVE = "resolve"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Job:
    """Work that is too long for the loop, or by code that is not ours: for a child process under a deadline.

    `request` is one msgpack value, all that the child gets; `context` stays here, for whoever takes the
    result. At most one of a kind is under way for a group. Jobs of one `lane` wait for each other; with
    `is_retry` the group's last one failed. Two that ask the same are not equal."""

    kind: JobKind
    group_id: str
    request: object
    deadline_ms: int
    context: object = None
    lane: str = ""
    is_retry: bool = False

    @property
    def key(self) -> tuple[JobKind, str]:
        return self.kind, self.group_id


@dataclass(frozen=True, slots=True)
class Trouble:
    """What failed in the work for a group: for the node's log, and for whoever explains the group.
    ``member_id`` is the member that was to do it, if one was."""

    group_id: str
    words: str
    work: JobKind
    member_id: str = ""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What one decision came to.

    `records` are applied already; non-empty, they become one entry at `Context.next_index` with `cause`.
    `error` is what a later step raised after earlier ones had written; there is no reply then. `trouble`
    is something that failed, while the decision went on without it; `has_assignor_failed`, for the metrics,
    if that is what did. `jobs` are to be started now; the end of each is told to
    `GroupShard.job_ended`. `rest` goes on with what was too much for one decision, in another one, which has
    the reply."""

    cause: Cause | None = None
    records: list[RawRecord] = field(default_factory=list)
    reply: object | None = None
    error: Exception | None = None
    trouble: Trouble | None = None
    has_assignor_failed: bool = False
    jobs: list[Job] = field(default_factory=list)
    rest: Callable[[Context], Outcome] | None = None


Steps = Generator[list[RawRecord], None, object]


@dataclass(slots=True)
class Draft:
    """The cause in the making: steps add to it, the shard freezes it when the decision is over. Reasons and
    references are each kept once, in the order in which they came."""

    trigger: int = 0
    member_id: str = ""
    member_epoch: int = -1
    reasons: dict[Reason, None] = field(default_factory=dict)
    refs: dict[Ref, None] = field(default_factory=dict)
    expiries: list[Expiry] = field(default_factory=list)
    owned: tuple[TopicPartitions, ...] | None = None
    detail: str = ""
    trouble: Trouble | None = None
    has_assignor_failed: bool = False
    by_operator: bool = False
    jobs: list[Job] = field(default_factory=list)
    rest: Callable[[Context, Draft], Steps] | None = None

    def cause(self, ctx: Context) -> Cause:
        """The cause as it is written."""
        return Cause(
            trigger=self.trigger,
            member_id=self.member_id,
            member_epoch=self.member_epoch,
            principal=ctx.principal if self.by_operator else "",
            address=ctx.client_host if self.by_operator else "",
            detail=self.detail,
            reasons=tuple(self.reasons),
            refs=tuple(self.refs),
            expiries=tuple(self.expiries),
            owned=self.owned,
        )

    def because(self, kind: ReasonKind, *, member_id: str = "", topic: str = "", detail: str = "") -> None:
        self.reasons[Reason(kind=kind, member_id=member_id, topic=topic, detail=detail)] = None

    def refer(self, shard: int, index: int) -> None:
        self.refs[Ref(shard=shard, index=index)] = None


class Refused(Exception):
    """A request that gets an error reply and changes nothing.

    Carries Kafka's code and a message that says what was wrong and what to do. A message quotes what the
    client sent, whatever its length; of a very long one its begin and its end are kept."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        if len(message) > MESSAGE_CHARS_MAX:
            kept = MESSAGE_CHARS_MAX // 2
            message = f"{message[:kept]} … {message[-kept:]}"
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
