"""The protocols that groups and members speak: their names in rows, and in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from records import ReasonKind, RecordType, Trigger

CONSUMER, CLASSIC, MIXED = "consumer", "classic", "mixed"
"""Protocols of members and of groups; a mixed group is a consumer group with classic members."""
PUSH, REWRITE = "push", "rewrite"
"""The protocols before those (`lineage`): seed 004, and the consumer rewrite design of 2013, seed 000."""
OLD = frozenset({PUSH, REWRITE})

CALLED = {
    PUSH: "the push protocol (Register, Ping, Stop, Start)",
    REWRITE: "the consumer rewrite design of 2013 (JoinGroup with assignment by the server)",
}
"""The older protocols in plain words."""

_PROTOCOLS: Mapping[int, str] = {RecordType.PUSH_GROUP: PUSH, RecordType.REWRITE_GROUP: REWRITE}
_NOUNS = {PUSH: "round", REWRITE: "generation"}


def epoch_noun(protocol: str) -> str:
    """The protocol's word for its epochs; the push protocol has none, and its rounds are numbered instead."""
    return _NOUNS.get(protocol, "epoch")


def progress_verbs(protocol: str) -> tuple[str, str, str, str]:
    """A member's steps in an epoch: it is told to give up partitions, does so, takes some, arrives."""
    if protocol == PUSH:
        return "was sent Stop for", "stopped", "was sent Start for", "answered Start of"
    return "was told to give up", "gave up", "took", "reached"


def protocol_in(types: Iterable[int]) -> str:
    """The older protocol that an entry with records of these types is about; empty if it is none."""
    return next((_PROTOCOLS[one] for one in types if one in _PROTOCOLS), "")


TRIGGERS: Mapping[str, Mapping[int, str]] = {
    PUSH: {
        Trigger.MEMBER_JOINED: "{member} registered",
        Trigger.MEMBER_REJOINED: "{member} registered again",
        Trigger.MEMBER_ACKED: "{member} answered that it has {plain}",
        Trigger.MEMBER_LEFT: "{member} {plain:left}",
        Trigger.SESSION_EXPIRED: "{member} failed{detail}{heard}",
        Trigger.READY_CHECK: "{plain:the check that follows a start or failover}",
        Trigger.TARGET_COMPUTED: "nobody owned anything any more, and everyone was sent Start",
    },
    REWRITE: {
        Trigger.GENERATION_COMPLETED: "every consumer that was alive had sent JoinGroup",
    },
}
"""The meaning of an entry's trigger in an older protocol, where it differs from `history.words`."""

REASONS: Mapping[str, Mapping[int, str]] = {
    PUSH: {
        ReasonKind.MEMBER_JOINED: "{member} registered{detail}",
        ReasonKind.MEMBER_LEFT: "{member} {plain:left}",
        ReasonKind.SESSION_EXPIRED: "{member} failed{detail}{heard}",
    },
    REWRITE: {
        ReasonKind.MEMBER_JOINED: "{member} sent its first JoinGroup",
        ReasonKind.MEMBER_REJOINED: "{member} sent JoinGroup again, with the same topics",
        ReasonKind.JOIN_TIMED_OUT: "{member} knew of the rebalance and did not send JoinGroup in time{late}",
    },
}
"""The same of the reasons for a round or a generation."""
