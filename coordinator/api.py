"""Inputs and outputs of a shard.

The shard is pure: time, ids, the catalog and the settings enter in a `Context`, and everything it decides
leaves in an `Decision`. A handler is a generator of *steps*. Each step yields the records it wants to write;
the shard applies them at once, and the next step sees the updated projection. The generator's return value is
the reply. All records of all steps form one entry with one cause.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import StrEnum

from coordinator.limits import SettingsView
from coordinator.topics import CatalogView
from records import Cause, Expiry, Phases, RawRecord, Reason, ReasonKind, Ref, TopicPartitions
from wire.errors import ErrorCode

MESSAGE_CHARS_MAX = 2_000
"""Maximum characters in the message of a refusal: a page of text, even when it quotes a name of 32 KB.
Kafka's older strings end at 32,767 bytes, so a longer message could not be sent."""


def _no_clock() -> float:
    return 0.0


@dataclass(slots=True, kw_only=True)
class Context:
    """External inputs of one decision.

    `monotonic_ms` drives timers; `wall_ms` only goes into records. `settled_ms` returns a wall-clock time
    that has certainly passed, even if this node's clock is wrong; None means `wall_ms`. `next_index` is the
    index that this decision's entry will get. `turn` numbers the turns of the event loop: a group computes at
    most one target per turn, and 0 means that every decision is a turn of its own. `stopwatch_ms` measures
    the cost of computing a target. `is_one_of_several` says of a client that joins that others are on their
    way.
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
    is_one_of_several: bool = False

    @property
    def past_ms(self) -> int:
        """The time that retention uses: no later than `settled_ms`, so that one wrong clock deletes
        nothing."""
        return self.wall_ms if self.settled_ms is None else min(self.settled_ms(), self.wall_ms)


class JobKind(StrEnum):
    """Kinds of work that child processes do for a group."""

    ASSIGN = "assign"
    RESOLVE = "resolve"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Job:
    """Work for a child process under a deadline: too long for the event loop, or third-party code.

    `request` is one msgpack value, all that the child receives. `context` stays here, for the code that
    handles the result. A group has at most one job of each kind in progress. Jobs of the same `lane` run one
    after another. `is_retry` is set if the group's last job failed. Jobs are compared by identity, even if
    they ask the same."""

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
class Failure:
    """A failure in the work for a group, for the node's log and for explanations of the group's state.

    `member_id` is the member that was to do the work, if it was a member."""

    group_id: str
    words: str
    work: JobKind
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class Later:
    """In place of a reply: a later decision has it, under this number (`Decision.answers`)."""

    token: int


@dataclass(slots=True, kw_only=True)
class Decision:
    """The result of one decision.

    `records` are already applied; if there are any, they become one entry at `Context.next_index` with
    `cause`. `error` is an exception raised by a later step after earlier ones had written; there is no reply
    then. `failure` is a failure that did not stop the decision; `has_assignor_failed` says, for the metrics,
    whether an assignor caused it. `notice` is a line for the node's log. `jobs` must be started now; the
    result of each goes to `GroupShard.job_ended`. `continuation` continues work that was too much for one
    decision in another one, which has the reply. `answers` are replies to earlier requests that were answered
    `Later`, by number. `refusal` says why the request was refused, also if the reply has no field for it."""

    cause: Cause | None = None
    records: list[RawRecord] = field(default_factory=list)
    reply: object | None = None
    answers: list[tuple[int, object]] = field(default_factory=list)
    refusal: str = ""
    error: Exception | None = None
    failure: Failure | None = None
    notice: str = ""
    has_assignor_failed: bool = False
    jobs: list[Job] = field(default_factory=list)
    continuation: Callable[[Context], Decision] | None = None


Steps = Generator[list[RawRecord], None, object]


@dataclass(slots=True)
class DecisionBuilder:
    """A cause under construction: steps add to it, and the shard freezes it when the decision ends.

    Each reason and each reference is kept once, in order of first addition."""

    trigger: int = 0
    member_id: str = ""
    member_epoch: int = -1
    reasons: dict[Reason, None] = field(default_factory=dict)
    refs: dict[Ref, None] = field(default_factory=dict)
    expiries: list[Expiry] = field(default_factory=list)
    owned: tuple[TopicPartitions, ...] | None = None
    phases: Phases | None = None
    detail: str = ""
    failure: Failure | None = None
    notice: str = ""
    has_assignor_failed: bool = False
    by_operator: bool = False
    jobs: list[Job] = field(default_factory=list)
    answers: list[tuple[int, object]] = field(default_factory=list)
    continuation: Callable[[Context, DecisionBuilder], Steps] | None = None

    def cause(self, ctx: Context) -> Cause:
        """The finished cause, as it is written to the log."""
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
            phases=self.phases,
        )

    def because(self, kind: ReasonKind, *, member_id: str = "", topic: str = "", detail: str = "") -> None:
        self.reasons[Reason(kind=kind, member_id=member_id, topic=topic, detail=detail)] = None

    def refer(self, shard: int, index: int) -> None:
        self.refs[Ref(shard=shard, index=index)] = None


class RequestRefused(Exception):
    """A request that gets an error reply and changes nothing.

    Carries Kafka's error code and a message that says what was wrong and what to do. A message may quote what
    the client sent, whatever its length; only the beginning and the end of a very long message are kept."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        if len(message) > MESSAGE_CHARS_MAX:
            kept = MESSAGE_CHARS_MAX // 2
            message = f"{message[:kept]} … {message[-kept:]}"
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
