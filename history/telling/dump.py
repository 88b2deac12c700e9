"""Entries one by one, as text or as JSON lines: the log without interpretation.

What cannot be decoded is shown raw, entries of types unknown to this release are kept, and damage appears in
its place between the entries, so that a dump never silently shows less than the files hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from history.protocols import protocol_in
from history.reading.groups import GROUPS_NAMED_MAX, groups_of
from history.reading.node import NodeLog
from history.reading.opening import open_node
from history.reading.source import LogGap, Walk
from history.render import LOCAL, TimeStyle, sentence_list
from history.words import Formatter, cause_line, record_words, shard_name, term_words, type_name
from raftlog.storage.frames import Frame
from records import (
    Entry,
    RawRecord,
    RecordsError,
    RecordType,
    decode_entry,
    entry_to_json,
    group_id_of,
)
from records.ids import topic_id_text

from .terms import term_start_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """The entries to show: all given conditions must hold. Ranges include both ends.

    If an entry matches, only its records of the requested groups and types are shown; ``hidden`` counts the
    others. ``types`` are record type numbers (`type_number` parses a name).
    """

    groups: frozenset[str] = frozenset()
    types: frozenset[int] = frozenset()
    shards: frozenset[int] = frozenset()
    from_index: int | None = None
    to_index: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None


EVERYTHING = Filter()


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedEntry:
    """One entry as it is shown."""

    shard: int
    frame: Frame
    entry: Entry | None
    """``None``: its body cannot be decoded; ``damage`` says why."""
    hidden: int = 0
    damage: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedGap:
    """Entries that cannot be read, in their place."""

    shard: int
    gap: LogGap


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedSource:
    """The node that a shard's entries are read from, if there are several; precedes the first entry."""

    shard: int
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedRemark:
    """A limitation of everything that follows: a part that was not copied, an unreachable node."""

    text: str


Dumped = DumpedEntry | DumpedGap | DumpedSource | DumpedRemark


def type_number(text: str) -> int:
    """A record type from its number or its name (``ConsumerGroupMetadata``, ``offset_commit``)."""
    if text.isdigit():
        return int(text)
    names = {known.name.replace("_", "").lower(): int(known) for known in RecordType}
    number = names.get(text.replace("_", "").replace("-", "").lower())
    if number is None:
        known_names = ", ".join(type_name(known) for known in RecordType)
        raise ValueError(f"{text!r} is not a record type: give a number or one of {known_names}")
    return number


def dump(path: str | NodeLog, wanted: Filter = EVERYTHING) -> Iterator[Dumped]:
    """The entries of a node's directory, shard by shard (metadata first), in the order of the log.

    If groups are given, damage in the entries of others is not searched for. Raises `NothingToRead` if the
    directory holds no shard, or none that was requested.
    """
    node = open_node(path)
    for remark in node.remarks:
        yield DumpedRemark(text=remark)
    is_any = False
    for shard in shards_for(node, wanted):
        reader = node.reader(shard)
        if reader.node:
            yield DumpedSource(shard=shard, node=reader.node)
        walk = Walk(
            shard,
            reader,
            from_index=wanted.from_index,
            to_index=wanted.to_index,
            to_ms=wanted.to_ms,
            stateless=True,
            with_undecided=True,
        )
        for item in walk.about(wanted.groups) if wanted.groups else walk:
            if isinstance(item, Frame | LogGap) and (shown := dumped(shard, item, wanted)) is not None:
                is_any = True
                yield shown
    if not is_any:
        yield DumpedRemark(text=_nothing_words(node, wanted))


def _nothing_words(node: NodeLog, wanted: Filter) -> str:
    """Message for an empty result; it lists the existing groups if none of those requested exists."""
    said = "no entry matches"
    known = groups_of(node) if wanted.groups else []
    if not wanted.groups or not wanted.groups.isdisjoint(known):
        return said
    names, rest = sentence_list(known[:GROUPS_NAMED_MAX]), len(known) - GROUPS_NAMED_MAX
    return f"{said}; with members the log has {names or 'no group'}" + (f" and {rest} more" * (rest > 0))


def dumped(shard: int, item: Frame | LogGap, wanted: Filter = EVERYTHING) -> Dumped | None:
    """One entry or gap as it is shown; ``None`` if it does not match."""
    if isinstance(item, LogGap):
        return DumpedGap(shard=shard, gap=item)
    if wanted.from_ms is not None and item.timestamp_ms < wanted.from_ms:
        return None
    return _shown(shard, item, wanted)


def shards_for(node: NodeLog, wanted: Filter) -> tuple[int, ...]:
    """The shards to read; raises `NothingToRead` if a requested one is missing."""
    if wanted.shards:
        for shard in wanted.shards:
            node.reader(shard)
        return tuple(sorted(wanted.shards))
    if wanted.groups and node.num_shards is not None:
        held = {node.shard_of_group(group) for group in wanted.groups}
        return tuple(shard for shard in node.shards if shard in held)
    return node.shards


def _shown(shard: int, frame: Frame, wanted: Filter) -> DumpedEntry | None:
    try:
        entry = decode_entry(frame.body)
    except RecordsError as error:
        return DumpedEntry(shard=shard, frame=frame, entry=None, damage=str(error))
    if not wanted.groups and not wanted.types:
        return DumpedEntry(shard=shard, frame=frame, entry=entry)
    kept = tuple(raw for raw in entry.records if _is_wanted(raw, wanted))
    if not kept:
        return None
    hidden = len(entry.records) - len(kept)
    return DumpedEntry(shard=shard, frame=frame, entry=replace(entry, records=kept), hidden=hidden)


def _is_wanted(raw: RawRecord, wanted: Filter) -> bool:
    if wanted.types and raw.type not in wanted.types:
        return False
    return not wanted.groups or group_id_of(raw) in wanted.groups


def dump_text(
    items: Iterable[Dumped], style: TimeStyle = LOCAL, topic: Callable[[bytes], str] = topic_id_text
) -> Iterator[str]:
    """Lines of text: a head line per entry, then one indented line per record.

    ``topic`` names a topic id, such as ``open_node(path).catalog().name``.
    """
    formatter = Formatter(style, topic=topic)
    before: tuple[int, int, int] | None = None
    for item in items:
        if isinstance(item, DumpedGap):
            yield f"!! {shard_name(item.shard)}: {item.gap.words()}"
            continue
        if isinstance(item, DumpedSource):
            yield f"-- {shard_name(item.shard)} is read from {item.node}, the furthest of the nodes here"
            continue
        if isinstance(item, DumpedRemark):
            yield f"-- {item.text}"
            continue
        frame = item.frame
        head = f"{shard_name(item.shard)} #{frame.index} term {frame.term} {style.full(frame.timestamp_ms)}"
        if not frame.decided:
            head += " UNDECIDED"
        if item.entry is None:
            yield f"{head} !! not decodable: {item.damage} ({frame.file} at byte {frame.offset})"
            continue
        gap_ms = None
        if before is not None and before[:2] == (item.shard, frame.index - 1):
            gap_ms = frame.timestamp_ms - before[2]
        before = (item.shard, frame.index, frame.timestamp_ms)
        told = replace(formatter, protocol=protocol_in(raw.type for raw in item.entry.records))
        yield f"{head} {_what_happened(item.entry, frame, gap_ms, told)}"
        for raw in item.entry.records:
            yield "    " + record_words(raw, formatter)
        if item.hidden:
            yield f"    ({item.hidden} more records do not match)"


def _what_happened(entry: Entry, frame: Frame, gap_ms: int | None, formatter: Formatter) -> str:
    term = term_start_of(entry)
    return (
        cause_line(entry.cause, frame.timestamp_ms, formatter) if term is None else term_words(term, gap_ms)
    )


def dump_json(items: Iterable[Dumped]) -> Iterator[str]:
    """One JSON object per line, lossless: ``records.entry_from_json`` reads ``entry`` back."""
    for item in items:
        if isinstance(item, DumpedGap):
            gap = item.gap
            shown: dict[str, object] = {
                "shard": item.shard,
                "damage": gap.what,
                "after_index": gap.after_index,
            }
            shown |= {"file": gap.file, "offset": gap.offset}
        elif isinstance(item, DumpedSource):
            shown = {"shard": item.shard, "node": item.node}
        elif isinstance(item, DumpedRemark):
            shown = {"remark": item.text}
        else:
            frame = item.frame
            shown = {
                "shard": item.shard,
                "index": frame.index,
                "term": frame.term,
                "timestamp_ms": frame.timestamp_ms,
                "decided": frame.decided,
                "file": frame.file,
                "offset": frame.offset,
            }
            if item.entry is None:
                shown |= {"damage": item.damage, "body": frame.body.hex()}
            else:
                shown |= {"hidden": item.hidden, "entry": entry_to_json(item.entry)}
        yield json.dumps(shown, separators=(",", ":"), ensure_ascii=False)
