"""`explain`: why each epoch of a group, from the files of one node.

Reads the group's shard from its oldest entry on, and the metadata shard for what its causes refer to. The
answer carries what it rests on (`Basis`), so that "nothing happened" and "nothing is known" never look the
same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from history.reading.catalog import CatalogHistory
from history.reading.node import NodeLog
from history.reading.opening import open_node
from history.reading.source import Basis, Gap, NothingToRead, SnapshotLike, Walk
from history.render import LOCAL, TimeStyle, duration
from history.state.track import MEMBERSHIP_TYPES, GroupTrack
from raftlog.frames import Frame
from records import (
    Entry,
    RawRecord,
    RecordsError,
    RecordType,
    TermStartValue,
    Trigger,
    decode_cause,
    decode_value,
    group_id_of,
    iter_records,
)

from .evidence import UNKNOWN, longest_gap, with_notes
from .story import Acknowledgement, EpochStep, Move, NoteStep, Step, Storyteller, TermStep

__all__ = [
    "Acknowledgement",
    "EpochStep",
    "Explanation",
    "Move",
    "NoteStep",
    "Step",
    "TermStep",
    "explain",
    "explanation_text",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One group's history: its steps in the order of the log, and what they rest on."""

    group_id: str
    shard: int
    steps: tuple[Step, ...]
    members: dict[str, str]
    """Compact name -> member id and what the member said of itself, for names that are not the id."""
    basis: Basis
    notes: tuple[str, ...] = ()

    @property
    def epochs(self) -> tuple[EpochStep, ...]:
        return tuple(step for step in self.steps if isinstance(step, EpochStep))


def explain(
    path: str | NodeLog,
    group_id: str,
    *,
    shard: int | None = None,
    to_index: int | None = None,
    to_ms: int | None = None,
    style: TimeStyle = LOCAL,
) -> Explanation:
    """Why each epoch of ``group_id``, up to an index or a moment (epoch ms) if given.

    ``shard`` is needed only where a partial copy does not say how many shards the cluster has.  Raises
    `NothingToRead` when the directory or the shard is not there, or the log does not know the group.
    """
    node = open_node(path)
    number = node.shard_of_group(group_id) if shard is None else shard
    walk = Walk(number, node.reader(number), to_index=to_index, to_ms=to_ms)
    catalog = node.catalog()
    teller = Storyteller(group_id, catalog, style)
    tell(teller, walk)
    steps = teller.finish()
    if not any(isinstance(step, EpochStep) for step in steps) and not teller.track.exists:
        raise NothingToRead(_unknown_group(node, group_id, walk.basis))
    evidence = node.reader(number).evidence(group_id)
    return Explanation(
        group_id=group_id,
        shard=number,
        steps=_with_evidence(steps, evidence, teller, style),
        members={name: _described(member_id, teller) for name, member_id in teller.names.legend().items()},
        basis=walk.basis,
        notes=(*_notes(catalog, group_id), *(() if evidence else (UNKNOWN,))),
    )


def _with_evidence(
    steps: tuple[Step, ...], evidence: list[dict[str, Any]], teller: Storyteller, style: TimeStyle
) -> tuple[Step, ...]:
    group_id = teller.track.group_id
    told: list[Step] = []
    for step in steps:
        if isinstance(step, EpochStep) and step.trigger == Trigger.SESSION_EXPIRED.name:
            silent = [member for member in step.members if member not in step.away]
            gaps = (longest_gap(evidence, group_id, member, step.timestamp_ms) for member in silent)
            told.append(replace(step, evidence=tuple(gap for gap in gaps if gap is not None)))
        else:
            told.append(step)
    return with_notes(told, evidence, group_id, teller.say_member, style)


def _described(member_id: str, teller: Storyteller) -> str:
    said = teller.described.get(member_id)
    return f"{member_id} ({said})" if said else member_id


def _unknown_group(node: NodeLog, group_id: str, basis: Basis) -> str:
    return f"no epoch of group {group_id!r} in {node.path} ({basis.words()}): check the name, or the copy"


def _notes(catalog: CatalogHistory, group_id: str) -> tuple[str, ...]:
    if catalog.present:
        return ()
    said = "the metadata shard is not in this directory: topic changes are told without their details"
    return (f"{said}, and topic names come from the records of group {group_id}",)


def tell(teller: Storyteller, items: Iterable[Frame | Gap | SnapshotLike]) -> None:
    """Feeds a walk to a storyteller; entries about other groups only pass by, undecoded."""
    group_id = teller.track.group_id
    needle = group_id.encode()
    last_ms = -1
    for item in items:
        if isinstance(item, Frame):
            last_ms = item.timestamp_ms
            try:
                if needle in item.body or item.record_count == 1:
                    _tell_frame(teller, item, group_id)
                else:
                    teller.passed(last_ms)
            except RecordsError as error:
                teller.note(item.index, last_ms, f"this entry cannot be decoded: {error}")
        elif isinstance(item, Gap):
            teller.note(None, last_ms, item.words())
        else:
            teller.go_on_from(track_from_snapshot(group_id, item.records))


def _tell_frame(teller: Storyteller, frame: Frame, group_id: str) -> None:
    mine: list[RawRecord] = []
    for raw in iter_records(frame.body):
        if raw.type == RecordType.TERM_START:
            term = decode_value(raw)
            if isinstance(term, TermStartValue):
                teller.term(frame.index, frame.timestamp_ms, term)
        elif raw.type in MEMBERSHIP_TYPES and group_id_of(raw) == group_id:
            mine.append(raw)
    if mine:
        entry = Entry(cause=decode_cause(frame.body), records=tuple(mine))
        teller.entry(frame.index, frame.timestamp_ms, entry)
    else:
        teller.passed(frame.timestamp_ms)


def track_from_snapshot(group_id: str, raws: Iterable[RawRecord]) -> GroupTrack:
    """The group as a snapshot has it."""
    track = GroupTrack(group_id)
    for raw in raws:
        if raw.type in MEMBERSHIP_TYPES and group_id_of(raw) == group_id:
            track.apply(raw)
    return track


def explanation_text(explanation: Explanation, style: TimeStyle = LOCAL) -> Iterator[str]:
    """Lines for people: what the answer rests on, then a paragraph per step."""
    yield f"Group {explanation.group_id}"
    yield f"from {explanation.basis.words()}"
    for note in explanation.notes:
        yield f"note: {note}"
    for name, described in explanation.members.items():
        yield f"{name} is {described}"
    for step in explanation.steps:
        yield ""
        if isinstance(step, EpochStep):
            yield from _epoch_text(step, style)
        else:
            place = "" if step.index is None else f"  index {step.index}"
            yield f"{style.full(step.timestamp_ms)}{place}"
            yield f"  {step.why if isinstance(step, TermStep) else step.text}{_silence(step)}"


def _silence(step: TermStep | NoteStep) -> str:
    if isinstance(step, TermStep) and step.silent_ms is not None and not step.is_takeover:
        return f"; {duration(step.silent_ms)} after the entry before"
    return ""


def _epoch_text(step: EpochStep, style: TimeStyle) -> Iterator[str]:
    inferred = " (inferred, not recorded)" if step.inferred else ""
    yield f"{style.full(step.timestamp_ms)}  index {step.index}  epoch {step.epoch_before} -> {step.epoch}"
    for reason in step.why:
        yield f"  because   {reason}{inferred}"
    for noted in step.evidence:
        yield f"  noted     {noted}"
    for move in step.moves:
        yield f"  moved     {move.words()}"
    for said in step.acknowledgements:
        yield f"  progress  {_progress_text(said, step)}"
    if step.took_ms is not None:
        when = "at once" if step.settled_index == step.index else f"after {duration(step.took_ms)}"
        settled = "empty" if step.state == "Empty" else "stable"
        yield f"  {settled}    {when}, index {step.settled_index}".replace("empty    ", "empty     ")
    elif step.overtaken_by is not None:
        yield f"  overtaken by epoch {step.overtaken_by}, while {step.state}"
    else:
        yield f"  not stable at the end of what was read: {step.state}"
    for member, owned in step.owners.items():
        yield f"  owned by  {member}: {owned or 'nothing'}"


def _progress_text(said: Acknowledgement, step: EpochStep) -> str:
    parts = [f"gave up {said.released}" if said.released else "", f"took {said.took}" if said.took else ""]
    if said.reached:
        parts.append(f"reached epoch {step.epoch}")
    when = "at once" if said.index == step.index else f"after {duration(said.after_ms)}, index {said.index}"
    return f"{said.member} {', '.join(part for part in parts if part)} {when}"
