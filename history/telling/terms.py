"""The leader of each shard, since when and why: the terms, read from their first entries.

Every term opens with a frame that names its leader, why it began and the previous leader. The gap between
that frame and the one before it is an upper bound of the time without a leader. It is measured from the last
entry of the old leader to the first of the new one, each by its node's clock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from history.columns import table
from history.reading.node import NodeLog
from history.reading.opening import open_node
from history.reading.source import Basis, LogGap, Walk
from history.render import LOCAL, TimeStyle, duration
from history.words import is_takeover, shard_name, term_why, term_words
from raftlog.storage.frames import Frame
from records import Entry, RecordsError, RecordType, TermStartValue, decode_entry, decode_value

HEADERS = ("shard", "term", "index", "began", "gap", "entries", "leader", "why")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTerm:
    """One term of a shard, as far as its entries are kept."""

    shard: int
    term: int
    node_id: int | None
    """The leader; ``None`` if the first entry of the term is missing or unreadable."""
    why: str
    """`START`, `EXPIRY`, `RESET`, `TRANSFER`, or the number of a reason unknown to this release."""
    previous_leader: int
    """Node id, as the new leader knew it; -1: unknown."""
    is_takeover: bool
    index: int
    timestamp_ms: int
    gap_ms: int | None
    """Milliseconds since the last entry of the previous term; ``None`` if that entry is not kept."""
    entries: int
    last_index: int
    last_timestamp_ms: int
    decided: bool
    """The first entry of the term is known to be committed: the leader served."""
    words: str


def terms(path: str | NodeLog, shard: int | None = None) -> tuple[KeptTerm, ...]:
    """The terms of all shards (or one), each shard's in order; raises `NothingToRead`."""
    return terms_and_bases(path, shard)[0]


def terms_and_bases(
    path: str | NodeLog, shard: int | None = None
) -> tuple[tuple[KeptTerm, ...], tuple[Basis, ...]]:
    """The same as `terms`, with the basis of each shard."""
    node = open_node(path)
    found: list[KeptTerm] = []
    bases: list[Basis] = []
    for number in node.shards if shard is None else (shard,):
        walk = Walk(number, node.reader(number), stateless=True, with_undecided=True)
        found.extend(_terms_of(walk, number))
        bases.append(walk.basis)
    return tuple(found), tuple(bases)


def _terms_of(walk: Walk, shard: int) -> Iterator[KeptTerm]:
    first: Frame | None = None
    last: Frame | None = None
    gap_ms: int | None = None
    entries = 0
    for item in walk:
        if not isinstance(item, Frame):
            assert isinstance(item, LogGap)
            continue
        if first is None or last is None or item.term != first.term:
            if first is not None and last is not None:
                yield _term(shard, first, last, gap_ms, entries)
            gap_ms = (
                None
                if last is None or last.index != item.index - 1
                else item.timestamp_ms - last.timestamp_ms
            )
            first, entries = item, 0
        last = item
        entries += 1
    if first is not None and last is not None:
        yield _term(shard, first, last, gap_ms, entries)


def _term(shard: int, first: Frame, last: Frame, gap_ms: int | None, entries: int) -> KeptTerm:
    start = _start_in(first)
    return KeptTerm(
        shard=shard,
        term=first.term,
        node_id=None if start is None else start.node_id,
        why="" if start is None else term_why(start.why),
        previous_leader=-1 if start is None else start.previous_leader,
        is_takeover=start is not None and is_takeover(start),
        index=first.index,
        timestamp_ms=first.timestamp_ms,
        gap_ms=gap_ms,
        entries=entries,
        last_index=last.index,
        last_timestamp_ms=last.timestamp_ms,
        decided=first.decided,
        words="its first entry is not here" if start is None else term_words(start, gap_ms),
    )


def _start_in(frame: Frame) -> TermStartValue | None:
    try:
        return term_start_of(decode_entry(frame.body))
    except RecordsError:
        return None


def term_start_of(entry: Entry) -> TermStartValue | None:
    """The term start in an entry; ``None`` if the entry does not start a term."""
    for raw in entry.records:
        if raw.type == RecordType.TERM_START:
            with contextlib.suppress(ValueError, TypeError):
                value = decode_value(raw)
                return value if isinstance(value, TermStartValue) else None
    return None


def terms_text(
    found: Sequence[KeptTerm], *, width: int | None = None, style: TimeStyle = LOCAL
) -> Iterator[str]:
    """The terms as a table that fits the width, one row per term."""
    rows = [
        (
            shard_name(one.shard),
            str(one.term),
            str(one.index),
            style.full(one.timestamp_ms),
            "" if one.gap_ms is None else duration(one.gap_ms),
            str(one.entries),
            "unknown" if one.node_id is None else f"node {one.node_id}",
            one.words + ("" if one.decided else " (UNDECIDED)"),
        )
        for one in found
    ]
    yield from table(HEADERS, rows, width)
