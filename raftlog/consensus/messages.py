"""Messages between the replicas of one shard: msgpack arrays, the kind first, fields only ever appended.

Entries travel as the leader's frames, byte for byte, so one encoding serves all peers and equal entries are
equal bytes on every node.  Every answer carries the term in which it was given, and the send time of the
message that it answers, on the clock of that message's sender: the base of the lease and of proofs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, get_type_hints

import msgpack


class MessageKind(IntEnum):
    """The kind of a message: its first item."""

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
    """Not a message of this version; the connection that it came by may be out of step."""


_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Both hashes after the entry `index`: nodes that agree there have equal histories and equal states."""

    index: int
    chain: bytes
    state: int


@dataclass(slots=True)
class Append:
    """The leader's entries after `prev_index`, or none: a heartbeat.

    - `sent_ms`: the leader's clock.
    - `joined_index`: a joining node has everything once its log reaches this index (-1: not known yet).
    - `known_ms`: an earlier `asked_ms` of this peer, up to which certainly no other node led: at that time of
      the peer's clock nothing after `commit_index` was committed (-1: unknown; None: the leader runs an older
      release, which never sends it).
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
    """A follower's acknowledgement: its synced log equals the leader's up to `match_index`.

    `applied_index` is the last entry it has applied.  An acknowledgement of a joining node does not count
    towards a quorum.  `asked_ms` is the follower's own clock when it sends this: see `Append.known_ms`.
    `obstacle` is what would keep it from serving the shard (`raftlog.env.obstacles`), left out when nothing
    does.
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
    kind: ClassVar[MessageKind]

    def encode(self) -> bytes:
        return bytes(_pack((int(self.kind), *[getattr(self, name) for name in _FIELDS[self.kind]])))


@dataclass(slots=True)
class Reject(_Plain):
    """A follower's refusal: it has no entry `prev_index` of that term.

    `next_index` is the index to try next, a whole term further back; `last_index` is 0 for an empty log.  In
    reply to a lower term only `term` counts.
    """

    kind: ClassVar = MessageKind.REJECT
    term: int
    prev_index: int
    next_index: int
    last_index: int
    applied_index: int
    sent_ms: float
    is_joining: bool = False


@dataclass(slots=True)
class VoteRequest(_Plain):
    """A candidate's request; `is_transfer`: the leader asked for this election and gave up its lease."""

    kind: ClassVar = MessageKind.VOTE_REQUEST
    term: int
    last_index: int
    last_term: int
    is_transfer: bool


@dataclass(slots=True)
class Vote(_Plain):
    """A granted vote; there is no message for a refusal, which the pre-vote has announced already."""

    kind: ClassVar = MessageKind.VOTE
    term: int


@dataclass(slots=True)
class PreVoteRequest(_Plain):
    """Asks whether the receiver would vote for the sender in `term`; changes nothing on either side.

    `round` numbers the sender's attempts.
    """

    kind: ClassVar = MessageKind.PRE_VOTE_REQUEST
    term: int
    last_index: int
    last_term: int
    round: int


@dataclass(slots=True)
class PreVote(_Plain):
    """The answer to a pre-vote; `term` is the voter's own, `wait_ms` how long until it would really vote."""

    kind: ClassVar = MessageKind.PRE_VOTE
    term: int
    round: int
    granted: bool
    wait_ms: float


@dataclass(slots=True)
class TimeoutNow(_Plain):
    """The leader's request to the peer that should take over: campaign at once, the lease is given up."""

    kind: ClassVar = MessageKind.TIMEOUT_NOW
    term: int


@dataclass(slots=True)
class Term(_Plain):
    """Sent by both ends of a new link: the term that each has stored.

    `asks`: the receiver should answer, because messages sent before a replica was loaded are lost.
    `protects_ms`: for this long after hearing from a leader the sender votes for no other node.
    """

    kind: ClassVar = MessageKind.TERM
    term: int
    asks: bool = False
    protects_ms: float = 0.0


@dataclass(slots=True)
class SnapshotChunk(_Plain):
    """Bytes of the leader's snapshot file at `offset`; the file ends at `size`, its state at `last_index`."""

    kind: ClassVar = MessageKind.SNAPSHOT
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
    """A follower's answer: it has the snapshot of `last_index` up to `offset`; `is_refused`: resume there."""

    kind: ClassVar = MessageKind.SNAPSHOT_ACK
    term: int
    last_index: int
    offset: int
    sent_ms: float
    is_joining: bool = False
    is_refused: bool = False


@dataclass(slots=True)
class DivergedMessage:
    """The leader's order to stop.

    Sent to a node whose hashes differ from the majority's, or to all (`is_majority` false) when there is no
    majority.
    """

    term: int
    checkpoint: Checkpoint
    is_majority: bool

    def encode(self) -> bytes:
        point = self.checkpoint
        return bytes(_pack((12, self.term, (point.index, point.chain, point.state), self.is_majority)))


@dataclass(slots=True)
class HistoryRequest(_Plain):
    """A request of a node whose archive begins after `before_index`, to any other node.

    It asks for at most `bytes_max` bytes, from `offset` on, of the segment that ends with that entry.  With 0
    the answer says only whether there is one, and how large it is.
    """

    kind: ClassVar = MessageKind.HISTORY_REQUEST
    before_index: int
    offset: int
    bytes_max: int

    def __post_init__(self) -> None:
        _check_counts(self.before_index, self.offset, self.bytes_max)


@dataclass(slots=True)
class HistoryChunk(_Plain):
    """The answer: bytes at `offset` of `size`, the newest entry's time, the hash chain before the segment.

    `size` 0: not, or no longer, in the archive.
    """

    kind: ClassVar = MessageKind.HISTORY_CHUNK
    before_index: int
    size: int
    newest_ms: int
    chain_before: bytes
    offset: int
    data: bytes

    def __post_init__(self) -> None:
        _check_counts(self.before_index, self.size, self.offset)


def _check_counts(*counts: int) -> None:
    """Check indexes, offsets and sizes; raises ValueError for a negative one."""
    if min(counts) < 0:
        raise ValueError(f"{counts} are not valid counts")


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
    | DivergedMessage
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
"""The largest term or index; the smallest is -1, for "none"."""
_APPEND = (int, int, int, int, float, bytes, int)
_ACK = (int, int, int, float, bool)


def decode(payload: bytes) -> Message:
    """The message, with fields of the right types and in range; raises BadMessage.

    Fields appended by a later version are ignored.
    """
    try:
        fields = msgpack.unpackb(payload)
        kind = fields[0]
        if kind == 1:
            _, term, prev, prev_term, commit, sent_ms, frames, joined, point = fields[:9]
            is_sound = tuple(map(type, fields[1:8])) == _APPEND
            numbers = (term, prev, prev_term, commit, joined)
            if not is_sound or min(numbers) < -1 or max(numbers) > NUMBER_MAX:
                raise ValueError("fields have the wrong types or are out of range")
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
                raise ValueError("fields have the wrong types or are out of range")
            asked_ms = _time(fields[7]) if len(fields) > 7 else -1.0
            return Ack(term, match, applied, sent_ms, joining, _checkpoint(point), asked_ms, obstacle)
        if kind == MessageKind.DIVERGED:
            found = _checkpoint(fields[2])
            if found is None or type(fields[3]) is not bool:
                raise ValueError("fields have the wrong types")
            _check(fields[1:2], (int,))
            return DivergedMessage(fields[1], found, fields[3])
        values = fields[1 : 1 + len(_FIELDS[kind])]
        _check(values, _TYPES[kind])
        message: Message = _PLAIN[kind](*values)
        return message
    except (ValueError, TypeError, KeyError, IndexError, msgpack.UnpackException) as error:
        raise BadMessage(f"{payload[:40]!r}: {error!r}") from error


def _check(values: list[Any], types: tuple[Any, ...]) -> None:
    """Raise ValueError if a field is of another type or out of range; the last fields may be missing."""
    for value, kind in zip(values, types, strict=False):
        if type(value) is not kind:
            raise ValueError(f"{value!r} instead of a {kind.__name__}")
        if kind in (int, float) and not -1 <= value <= NUMBER_MAX:  # nor NaN
            raise ValueError(f"{value!r} is out of range")


def _time(value: Any) -> float:
    if type(value) is not float or not -1 <= value <= NUMBER_MAX:
        raise ValueError(f"{value!r} is not a valid time")
    return value


def _checkpoint(point: Any) -> Checkpoint | None:
    if point is None:
        return None
    index, chain, state = point
    if (type(index), type(chain), type(state)) != (int, bytes, int):
        raise ValueError("the checkpoint has the wrong types")
    return Checkpoint(index, chain, state)
