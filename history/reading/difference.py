"""Entries of one index on several nodes that should be the same: what differs, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from history.render import LOCAL, TimeStyle, plural, sentence_list
from history.words import Formatter, cause_line, type_name
from raftlog.storage.frames import Frame
from records import Entry, RecordsError, decode_entry, group_id_of

RECORDS_NAMED_MAX = 5
"""Maximum number of differing records that are named; the rest are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The version of the entry on some of the nodes; ``cause`` and ``records`` are words."""

    nodes: tuple[str, ...]
    term: int
    commit_index: int
    timestamp_ms: int
    cause: str
    records: tuple[str, ...]
    file: str
    offset: int
    """Byte offset of the entry in the file of the first of the nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first entry of a shard that is not the same on all nodes."""

    index: int
    what: tuple[str, ...]
    """The differences, in words: ``the term (3, 4)``, ``record 2: OffsetCommit of group billing``."""
    variants: tuple[Variant, ...]

    def words(self) -> str:
        """``entry 42 of nodes 1 and 3 is not that of node 2: the term (3, 4)``."""
        first, *others = (sentence_list(variant.nodes) for variant in self.variants)
        what = sentence_list(self.what)
        return f"entry {self.index} of {first} differs from that of {sentence_list(others)}: {what}"


def same(one: Frame, other: Frame) -> bool:
    """Whether both entries are the same bytes on disk."""
    return (
        one.body == other.body
        and one.term == other.term
        and one.timestamp_ms == other.timestamp_ms
        and one.commit_index == other.commit_index
        and one.record_count == other.record_count
    )


def difference(held: Sequence[tuple[str, Frame]], style: TimeStyle = LOCAL) -> Difference:
    """Describe how the entries of one index differ; they are given with the names of their nodes."""
    groups: list[tuple[list[str], Frame]] = []
    for node, frame in held:
        known = next((nodes for nodes, other in groups if same(frame, other)), None)
        if known is None:
            groups.append(([node], frame))
        else:
            known.append(node)
    frames = [frame for _, frame in groups]
    return Difference(
        index=frames[0].index,
        what=tuple(_what_differs(frames)),
        variants=tuple(_variant(nodes, frame, style) for nodes, frame in groups),
    )


def _variant(nodes: Sequence[str], frame: Frame, style: TimeStyle) -> Variant:
    entry = _entry(frame)
    formatter = Formatter(style)
    return Variant(
        nodes=tuple(nodes),
        term=frame.term,
        commit_index=frame.commit_index,
        timestamp_ms=frame.timestamp_ms,
        cause="not decodable" if entry is None else cause_line(entry.cause, frame.timestamp_ms, formatter),
        records=() if entry is None else tuple(_record_names(entry)),
        file=frame.file,
        offset=frame.offset,
    )


def _entry(frame: Frame) -> Entry | None:
    try:
        return decode_entry(frame.body)
    except RecordsError:
        return None


def _record_names(entry: Entry) -> Iterator[str]:
    for raw in entry.records:
        group_id = group_id_of(raw)
        yield type_name(raw.type) + (f" of group {group_id}" if group_id is not None else "")


def _what_differs(frames: Sequence[Frame]) -> Iterator[str]:
    for name, values in (
        ("the term", [frame.term for frame in frames]),
        ("the time", [frame.timestamp_ms for frame in frames]),
        ("the commit index that the leader knew", [frame.commit_index for frame in frames]),
        ("the number of records", [frame.record_count for frame in frames]),
    ):
        if len(set(values)) > 1:
            yield f"{name} ({', '.join(map(str, values))})"
    if len({frame.body for frame in frames}) > 1:
        yield from _what_differs_inside([_entry(frame) for frame in frames])


def _what_differs_inside(entries: Sequence[Entry | None]) -> Iterator[str]:
    whole = [entry for entry in entries if entry is not None]
    if len(whole) < len(entries):
        yield "the body, which cannot be decoded on all nodes"
        return
    if any(entry.cause != whole[0].cause for entry in whole):
        yield "the cause"
    length = min(len(entry.records) for entry in whole)
    names = list(_record_names(whole[0]))
    unequal = [at for at in range(length) if any(e.records[at] != whole[0].records[at] for e in whole)]
    for at in unequal[:RECORDS_NAMED_MAX]:
        yield f"record {at + 1}: {names[at]}"
    if len(unequal) > RECORDS_NAMED_MAX:
        yield f"{plural(len(unequal) - RECORDS_NAMED_MAX, 'more record')}"


def difference_text(found: Difference, style: TimeStyle = LOCAL) -> Iterator[str]:
    """Lines of text: the place and what differs, then the version of each side."""
    yield found.words()
    for one in found.variants:
        yield f"  {sentence_list(one.nodes)}: term {one.term}, {style.full(one.timestamp_ms)}, {one.cause}"
        for name in one.records[:RECORDS_NAMED_MAX]:
            yield f"    {name}"
        if len(one.records) > RECORDS_NAMED_MAX:
            yield f"    and {plural(len(one.records) - RECORDS_NAMED_MAX, 'more record')}"
        yield f"    in {one.file} at byte {one.offset}"
