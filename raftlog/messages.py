"""What replicas of one shard say to each other: msgpack arrays, the kind first, fields only ever appended.

Entries travel as the leader's frames, byte for byte, so one encoding serves all peers and equal entries are
equal bytes on every node.  Every answer carries the term in which it was given, and the send time of the
message that it answers, on the clock of whoever sent that: the base of the lease and of proofs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, get_type_hints

import msgpack


class Kind(IntEnum):
    """First item of a message."""

    APPEND = 1
    ACK = 2
    REJECT = 3
    VOTE_REQUEST = 4
    VOTE = 5
    PRE_VOTE_REQUEST = 6
    PRE_VOTE = 7
    TIMEOUT_NOW = 8
    TERM = 9
    SNAPSHOT = 10
    SNAPSHOT_ACK = 11
    DIVERGED = 12
    HISTORY_REQUEST = 13
    HISTORY_CHUNK = 14


class BadMessage(ValueError):
    """Not a message of this version; the connection that it came by cannot be trusted to be in step."""


_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Both hashes after the entry `index`: nodes that agree there have equal histories and equal states."""

    index: int
    chain: bytes
    state: int


@dataclass(slots=True)
class Append:
    """The leader's entries behind `prev_index`, or none: a heartbeat.

    `sent_ms` is the leader's clock; `joined_index` tells a joining node that it knows everything once its
    log reaches that index (-1: not yet). `known_ms` is an `asked_ms` of this peer: the leader got it, and
    nobody else can have led by then, so that `commit_index` was all that there was
    at that time of the peer's clock (-1: not told; None: an older release, which tells it to nobody).
    """

    term: int
    prev_index: int
    prev_term: int
    commit_index: int
    sent_ms: float
    frames: bytes = b""
    joined_index: int = -1
    checkpoint: Checkpoint | None = None
    known_ms: float | None = -1.0

    def encode(self) -> bytes:
        point = self.checkpoint
        return bytes(
            _pack(
                (
                    1,
                    self.term,
                    self.prev_index,
                    self.prev_term,
                    self.commit_index,
                    self.sent_ms,
                    self.frames,
                    self.joined_index,
                    None if point is None else (point.index, point.chain, point.state),
                    self.known_ms,
                )
            )
        )


@dataclass(slots=True)
class Ack:
    """A follower's: its synced log equals the leader's up to `match_index`; it applied up to `applied_index`.

    A joining node's does not count towards a quorum. `asked_ms` is its own clock as it sends this: see
    `Append.known_ms`. `obstacle` is what would keep it from serving the shard (`raftlog.obstacles`), left out
    when nothing does.
    """

    term: int
    match_index: int
    applied_index: int
    sent_ms: float
    is_joining: bool = False
    checkpoint: Checkpoint | None = None
    asked_ms: float = -1.0
    obstacle: int = 0

    def encode(self) -> bytes:
        point = self.checkpoint
        fields = (
            2,
            self.term,
            self.match_index,
            self.applied_index,
            self.sent_ms,
            self.is_joining,
            None if point is None else (point.index, point.chain, point.state),
            self.asked_ms,
        )
        return bytes(_pack((*fields, self.obstacle) if self.obstacle else fields))


class _Plain:
    """A message whose array is its kind and its fields as they stand; subclasses are slotted dataclasses."""

    __slots__ = ()
    kind: ClassVar[Kind]

    def encode(self) -> bytes:
        return bytes(_pack((int(self.kind), *[getattr(self, name) for name in _FIELDS[self.kind]])))


@dataclass(slots=True)
class Reject(_Plain):
    """A follower's: it has no entry `prev_index` of that term.  `next_index` is where to try next, a whole
    term further back; `last_index` is 0 for an empty log.  In reply to a lower term only `term` counts."""

    kind: ClassVar = Kind.REJECT
    term: int
    prev_index: int
    next_index: int
    last_index: int
    applied_index: int
    sent_ms: float
    is_joining: bool = False


@dataclass(slots=True)
class VoteRequest(_Plain):
    """A candidate's; `is_transfer`: the leader itself asked for this election and gave up its lease."""

    kind: ClassVar = Kind.VOTE_REQUEST
    term: int
    last_index: int
    last_term: int
    is_transfer: bool


@dataclass(slots=True)
class Vote(_Plain):
    """A granted vote; refusals are silent, the pre-vote said them."""

    kind: ClassVar = Kind.VOTE
    term: int


@dataclass(slots=True)
class PreVoteRequest(_Plain):
    """Would you vote for me in `term`?  Changes nothing on either side; `round` numbers the asker's tries."""

    kind: ClassVar = Kind.PRE_VOTE_REQUEST
    term: int
    last_index: int
    last_term: int
    round: int


@dataclass(slots=True)
class PreVote(_Plain):
    """The answer; `term` is the answerer's own, `wait_ms` how long until it would really vote."""

    kind: ClassVar = Kind.PRE_VOTE
    term: int
    round: int
    granted: bool
    wait_ms: float


@dataclass(slots=True)
class TimeoutNow(_Plain):
    """The leader's to the peer that should lead: campaign at once, nobody protects my lease any more."""

    kind: ClassVar = Kind.TIMEOUT_NOW
    term: int


@dataclass(slots=True)
class Term(_Plain):
    """Said by both ends of a new link: the term each has stored.

    `asks`: to be answered, as what was said before a replica was loaded is lost.  `protects_ms`: for so long
    after hearing a leader the sender votes for nobody."""

    kind: ClassVar = Kind.TERM
    term: int
    asks: bool = False
    protects_ms: float = 0.0


@dataclass(slots=True)
class SnapshotChunk(_Plain):
    """Bytes of the leader's snapshot file at `offset`; the file ends at `size`, its state at `last_index`."""

    kind: ClassVar = Kind.SNAPSHOT
    term: int
    commit_index: int
    sent_ms: float
    last_index: int
    last_term: int
    size: int
    offset: int
    data: bytes


@dataclass(slots=True)
class SnapshotAck(_Plain):
    """A follower's: it has the snapshot of `last_index` up to `offset`; `is_refused`: go on there."""

    kind: ClassVar = Kind.SNAPSHOT_ACK
    term: int
    last_index: int
    offset: int
    sent_ms: float
    is_joining: bool = False
    is_refused: bool = False


@dataclass(slots=True)
class Diverged:
    """The leader's to a node whose hashes differ from the majority's, or (`is_majority` false) to all when
    there is no majority: stop."""

    term: int
    checkpoint: Checkpoint
    is_majority: bool

    def encode(self) -> bytes:
        point = self.checkpoint
        return bytes(_pack((12, self.term, (point.index, point.chain, point.state), self.is_majority)))


@dataclass(slots=True)
class HistoryRequest(_Plain):
    """Of a node whose archive begins behind `before_index`, to any other: at most `bytes_max` bytes, from
    `offset` on, of the segment that ends with that entry; 0 bytes: what have you got?"""

    kind: ClassVar = Kind.HISTORY_REQUEST
    before_index: int
    offset: int
    bytes_max: int

    def __post_init__(self) -> None:
        _check_counts(self.before_index, self.offset, self.bytes_max)


@dataclass(slots=True)
class HistoryChunk(_Plain):
    """The answer: bytes at `offset` of `size`; the newest entry's time, the hash chain before the segment.

    `size` 0: not, or no longer, in the archive."""

    kind: ClassVar = Kind.HISTORY_CHUNK
    before_index: int
    size: int
    newest_ms: int
    chain_before: bytes
    offset: int
    data: bytes

    def __post_init__(self) -> None:
        _check_counts(self.before_index, self.size, self.offset)


def _check_counts(*counts: int) -> None:
    """Indexes, offsets and sizes; raises ValueError."""
    if min(counts) < 0:
        raise ValueError(f"{counts} are no counts")


Message = (
    Append
    | Ack
    | Reject
    | VoteRequest
    | Vote
    | PreVoteRequest
    | PreVote
    | TimeoutNow
    | Term
    | SnapshotChunk
    | SnapshotAck
    | Diverged
    | HistoryRequest
    | HistoryChunk
)

_PLAIN: dict[int, type[Any]] = {
    message.kind: message
    for message in (
        Reject,
        VoteRequest,
        Vote,
        PreVoteRequest,
        PreVote,
        TimeoutNow,
        Term,
        SnapshotChunk,
        SnapshotAck,
        HistoryRequest,
        HistoryChunk,
    )
}
_FIELDS = {kind: tuple(message.__slots__) for kind, message in _PLAIN.items()}
_TYPES = {
    kind: tuple(get_type_hints(message)[name] for name in _FIELDS[kind]) for kind, message in _PLAIN.items()
}


NUMBER_MAX = (1 << 63) - 1
"""Of terms and indexes; -1 is the least, for "none"."""
_APPEND = (int, int, int, int, float, bytes, int)
_ACK = (int, int, int, float, bool)


def decode(payload: bytes) -> Message:
    """The message, its fields of the right types and in range; raises BadMessage.  Fields appended by a
    later version are ignored."""
    try:
        fields = msgpack.unpackb(payload)
        kind = fields[0]
        if kind == 1:
            _, term, prev, prev_term, commit, sent_ms, frames, joined, point = fields[:9]
            is_sound = tuple(map(type, fields[1:8])) == _APPEND
            numbers = (term, prev, prev_term, commit, joined)
            if not is_sound or min(numbers) < -1 or max(numbers) > NUMBER_MAX:
                raise ValueError("fields of other types, or out of range")
            known_ms = _time(fields[9]) if len(fields) > 9 else None
            return Append(
                term, prev, prev_term, commit, sent_ms, frames, joined, _checkpoint(point), known_ms
            )
        if kind == 2:
            _, term, match, applied, sent_ms, joining, point = fields[:7]
            is_sound = tuple(map(type, fields[1:6])) == _ACK
            obstacle = fields[8] if len(fields) > 8 else 0
            is_sound = is_sound and type(obstacle) is int
            counts = (term, match, applied, obstacle)
            if not is_sound or min(counts) < 0 or max(counts) > NUMBER_MAX:
                raise ValueError("fields of other types, or out of range")
            asked_ms = _time(fields[7]) if len(fields) > 7 else -1.0
            return Ack(term, match, applied, sent_ms, joining, _checkpoint(point), asked_ms, obstacle)
        if kind == Kind.DIVERGED:
            found = _checkpoint(fields[2])
            if found is None or type(fields[3]) is not bool:
                raise ValueError("fields of other types")
            _check(fields[1:2], (int,))
            return Diverged(fields[1], found, fields[3])
        values = fields[1 : 1 + len(_FIELDS[kind])]
        _check(values, _TYPES[kind])
        message: Message = _PLAIN[kind](*values)
        return message
    except (ValueError, TypeError, KeyError, IndexError, msgpack.UnpackException) as error:
        raise BadMessage(f"{payload[:40]!r}: {error!r}") from error


def _check(values: list[Any], types: tuple[Any, ...]) -> None:
    """Raises ValueError when a field is of another type or out of range; those at the end may be missing."""
    for value, kind in zip(values, types, strict=False):
        if type(value) is not kind:
            raise ValueError(f"{value!r} where {kind.__name__} is due")
        if kind in (int, float) and not -1 <= value <= NUMBER_MAX:  # nor NaN
            raise ValueError(f"{value!r} is out of range")


def _time(value: Any) -> float:
    if type(value) is not float or not -1 <= value <= NUMBER_MAX:
        raise ValueError(f"{value!r} is no time")
    return value


def _checkpoint(point: Any) -> Checkpoint | None:
    if point is None:
        return None
    index, chain, state = point
    if (type(index), type(chain), type(state)) != (int, bytes, int):
        raise ValueError("a checkpoint of other types")
    return Checkpoint(index, chain, state)
