"""`owner`: who owned a partition, at a moment or over time, in every group that assigns it.

For each group the answer gives the span at the moment (owned, being revoked, unowned), what began it, the
spans before and after, and the last commit of the partition until then.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from history.facts.commits import CommitKeys, commit_rows
from history.facts.rows import CommitRow, EpochRow, GroupRows, OwnershipSpan, SpanKind, TopicPartition
from history.facts.shard import facts_of_all
from history.protocols import epoch_noun
from history.reading.catalog import CatalogHistory
from history.reading.node import NodeLog
from history.reading.source import Basis, LogGap, NothingToRead, Walk
from history.render import LOCAL, TimeStyle, duration, sentence_list
from history.telling.member_labels import MemberLabels
from history.words import reasons_words
from raftlog.storage.frames import Frame
from records import RawRecord, RecordType, group_id_of, iter_records, offset_commit_key
from records.ids import METADATA_SHARD

TOPICS_NAMED_MAX = 8
"""Maximum number of topic names in an error message."""

_BEFORE_TOPIC = 2
"""Bytes before the topic in the key of an offset commit, if the group id is empty."""

_ASSIGNING = (
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    RecordType.CONSUMER_GROUP_PARTITION_METADATA,
)
_ASSIGNING_BY_NAME = (RecordType.GROUP_METADATA, RecordType.REWRITE_GROUP, RecordType.PUSH_GROUP)
"""The types of records that name topics by name when they assign partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedSpan:
    """One span, and why it began, in words."""

    kind: SpanKind
    member_id: str | None
    name: str
    """The member's compact name, or ``nobody``."""
    epoch: int
    noun: str
    """The word of the group's protocol for it: `epoch`, `generation` or `round`."""
    why: str
    from_index: int
    from_ms: int
    to_index: int | None
    to_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOwners:
    """The owners of the partition in one group that assigns it."""

    group_id: str
    shard: int
    members: dict[str, str]
    """Compact name -> member id and client description."""
    held: tuple[OwnedSpan, ...]
    """All spans, in order."""
    at: OwnedSpan | None
    """The span at the requested moment; ``None``: no moment was given, or the group did not subscribe to
    the topic."""
    before: OwnedSpan | None
    after: OwnedSpan | None
    last_commit: CommitRow | None
    """The last commit at or before the moment (by default the end of the log)."""
    basis: Basis | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOwners:
    """A partition in all groups; ``at_index`` and ``at_ms`` are the requested moment, if any."""

    partition: TopicPartition
    at_index: int | None
    at_ms: int | None
    groups: tuple[GroupOwners, ...]


def parse_partition(text: str) -> TopicPartition:
    """Parse ``orders-3``; raises `ValueError` saying what is expected."""
    topic, dash, number = text.rpartition("-")
    if not (topic and dash and number.isdecimal()):
        raise ValueError(f"{text!r} is not TOPIC-PARTITION, for example orders-3")
    return TopicPartition(topic=topic, partition=int(number))


def owner(
    log: NodeLog,
    partition: TopicPartition,
    *,
    group: str | None = None,
    at_index: int | None = None,
    at_ms: int | None = None,
    style: TimeStyle = LOCAL,
) -> PartitionOwners:
    """The owners of ``partition`` in one group or in all; an index belongs to the group's shard.

    Raises `NothingToRead`, naming what exists, if no group ever assigned it.
    """
    catalog = log.catalog()
    ids = {topic_id for topic_id, name in catalog.names.items() if name == partition.topic}
    shards = [log.shard_of_group(group)] if group is not None else log.shards
    found: list[GroupOwners] = []
    for shard in shards:
        if shard == METADATA_SHARD:
            continue
        names = {group} if group is not None else _sharing(log, shard, ids, partition.topic)
        sharing = {
            facts.group_id: _owners(facts, catalog, partition, at_index, at_ms, style)
            for facts in (facts_of_all(log, shard, names) if names else ())
            if any(span.partition == partition for span in facts.spans)
        }
        commits = _last_commits(log, shard, sharing, partition, at_index, at_ms) if sharing else {}
        found += [replace(sharing[key], last_commit=commits.get(key)) for key in sorted(sharing)]
    if not found:
        raise NothingToRead(_nobody_ever(catalog, partition, group))
    return PartitionOwners(partition=partition, at_index=at_index, at_ms=at_ms, groups=tuple(found))


def _sharing(log: NodeLog, shard: int, topic_ids: set[bytes], topic: str) -> set[str]:
    """The groups whose records may name the topic, by one of its ids or by its name."""
    name = topic.encode(errors="surrogatepass")
    found: set[str] = set()
    for item in Walk(shard, log.reader(shard)):
        if isinstance(item, LogGap):
            continue
        if isinstance(item, Frame):
            named = name in item.body or any(topic_id in item.body for topic_id in topic_ids)
            raws: Sequence[RawRecord] = iter_records(item.body) if named else ()
        else:
            raws = item.records
        for raw in raws:
            is_by_name = raw.type in _ASSIGNING_BY_NAME and name in (raw.value or b"")
            is_by_id = raw.type in _ASSIGNING and any(one in (raw.value or b"") for one in topic_ids)
            if is_by_name or is_by_id:
                found.add(group_id_of(raw) or "")
    return found


def _nobody_ever(catalog: CatalogHistory, partition: TopicPartition, group: str | None) -> str:
    who = "no group has ever" if group is None else f"group {group!r} never"
    said = f"{who} assigned {partition}: "
    counts = catalog.counts()
    if partition.topic in counts:
        return said + f"topic {partition.topic} has partitions 0 to {counts[partition.topic] - 1}"
    if not counts:
        return said + "the log knows no topic"
    shown, rest = sorted(counts)[:TOPICS_NAMED_MAX], len(counts) - TOPICS_NAMED_MAX
    return said + f"there is no such topic, but {sentence_list(shown)}" + (f" and {rest} more" * (rest > 0))


def _owners(
    facts: GroupRows,
    catalog: CatalogHistory,
    partition: TopicPartition,
    at_index: int | None,
    at_ms: int | None,
    style: TimeStyle,
) -> GroupOwners:
    if facts.basis is not None:
        facts.basis.demand(at_index)
    labels = MemberLabels(facts, catalog, style)
    spans = [span for span in facts.spans if span.partition == partition]
    held = tuple(_held(span, facts.epochs, labels) for span in spans)
    place: int | None = None
    if at_index is not None or at_ms is not None:
        place = next((n for n, span in enumerate(spans) if _is_in(span, at_index, at_ms)), None)
    return GroupOwners(
        group_id=facts.group_id,
        shard=facts.shard,
        members=labels.legend(),
        held=held,
        at=None if place is None else held[place],
        before=None if not place else held[place - 1],
        after=None if place is None or place + 1 == len(held) else held[place + 1],
        last_commit=None,
        basis=facts.basis,
    )


def _is_in(span: OwnershipSpan, at_index: int | None, at_ms: int | None) -> bool:
    if at_index is not None:
        return span.from_index <= at_index and (span.to_index is None or at_index < span.to_index)
    assert at_ms is not None
    return span.from_ms <= at_ms and (span.to_ms is None or at_ms < span.to_ms)


def _held(span: OwnershipSpan, epochs: Sequence[EpochRow], labels: MemberLabels) -> OwnedSpan:
    row = next((row for row in reversed(epochs) if row.index <= span.from_index), None)
    why = ""
    if row is not None and row.is_begin_known:
        formatter = labels.formatter(row.cause, row.away, row.topics, row.protocol)
        why = sentence_list(reasons_words(row.cause, row.timestamp_ms, formatter))
    return OwnedSpan(
        kind=span.kind,
        member_id=span.member_id,
        name=labels.short(span.member_id),
        epoch=span.epoch,
        noun="epoch" if row is None else epoch_noun(row.protocol),
        why=why,
        from_index=span.from_index,
        from_ms=span.from_ms,
        to_index=span.to_index,
        to_ms=span.to_ms,
    )


def _last_commits(
    log: NodeLog,
    shard: int,
    group_ids: Collection[str],
    partition: TopicPartition,
    at_index: int | None,
    at_ms: int | None,
) -> dict[str, CommitRow]:
    """The last commit of the partition in each group, from one walk for all of them."""
    by_key = {
        offset_commit_key(group_id, partition.topic, partition.partition): group_id for group_id in group_ids
    }
    needle = offset_commit_key("", partition.topic, partition.partition)[_BEFORE_TOPIC:]
    newest: dict[str, Frame] = {}
    walk = Walk(shard, log.reader(shard), to_index=at_index, to_ms=at_ms, stateless=True)
    for item in walk.about(group_ids):
        if isinstance(item, Frame) and needle in item.body:
            for raw in iter_records(item.body):
                if raw.type == RecordType.OFFSET_COMMIT and raw.key in by_key:
                    newest[by_key[raw.key]] = item
    keys = CommitKeys(group_ids)
    return {
        row.group_id: row
        for group_id, frame in newest.items()
        for row in commit_rows(shard, frame, keys)
        if (row.group_id, row.partition) == (group_id, partition)
    }


def owner_text(found: PartitionOwners, style: TimeStyle = LOCAL) -> Iterator[str]:
    """Lines of text: per group, the owner at the moment, or over time."""
    moment = ""
    if found.at_index is not None:
        moment = f" at index {found.at_index}"
    elif found.at_ms is not None:
        moment = f" at {style.full(found.at_ms)}"
    yield f"{found.partition}{moment}"
    for group in found.groups:
        yield ""
        yield f"Group {group.group_id}"
        if group.basis is not None:
            yield f"  from {group.basis.words()}"
            yield from (f"  note: {said}" for said in group.basis.later_than_read(found.at_ms, style))
        lines = [*_group_text(group, style, is_moment=bool(moment)), *_commit_text(group, found.at_ms, style)]
        yield from lines
        named = set(re.findall(r"\bm\d+\b", "\n".join(lines)))
        for name, described in group.members.items():
            if name in named:
                yield f"  {name} is {described}"


def _group_text(group: GroupOwners, style: TimeStyle, *, is_moment: bool) -> Iterator[str]:
    if not is_moment:
        for former, held in pairwise((None, *group.held)):
            assert held is not None
            yield f"  {_span_words(held, former, style)}"
        return
    if group.at is None:
        yield "  the group did not assign it at that time"
        first, last = group.held[0], group.held[-1]
        until = "" if last.to_ms is None else f" until {style.full(last.to_ms)} (index {last.to_index})"
        yield f"  it did from {style.full(first.from_ms)} (index {first.from_index}) on{until}"
        return
    former = None
    for word, span in (("before", group.before), ("then", group.at), ("after", group.after)):
        if span is not None:
            yield f"  {word:<7} {_span_words(span, former, style)}"
        former = span


def _span_words(held: OwnedSpan, former: OwnedSpan | None, style: TimeStyle) -> str:
    """One span in words; ``former`` is the span printed before, so that a reason is not repeated."""
    said = {
        SpanKind.OWNED: f"{held.name} owned it",
        SpanKind.REVOKING: f"{held.name} was told to give it up",
        SpanKind.UNOWNED: "nobody owned it",
    }[held.kind]
    if former is not None and (former.epoch, former.why) == (held.epoch, held.why):
        return f"{said} {_when(held, style)}, still in {held.noun} {held.epoch}"
    because = f", because {held.why}" if held.why else ""
    return f"{said} {_when(held, style)}, {held.noun} {held.epoch}{because}"


def _when(held: OwnedSpan, style: TimeStyle) -> str:
    since = f"from {style.full(held.from_ms)} (index {held.from_index})"
    if held.to_ms is None:
        return f"{since} on"
    return f"{since} for {duration(held.to_ms - held.from_ms)} (until index {held.to_index})"


def _commit_text(group: GroupOwners, at_ms: int | None, style: TimeStyle) -> Iterator[str]:
    commit = group.last_commit
    if commit is None:
        yield "  no offset of it was committed until then"
        return
    names = {held.member_id: held.name for held in group.held}
    who = names.get(commit.member_id, commit.member_id) or "a client without membership"
    ago = "" if at_ms is None else f", {duration(at_ms - commit.timestamp_ms)} before"
    what = "its offset was removed" if commit.offset is None else f"offset {commit.offset} was committed"
    place = f"{style.full(commit.timestamp_ms)} (index {commit.index}{ago})"
    yield f"  last {what} by {who} at {place}"
