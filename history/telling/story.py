"""Why each epoch: one group's log told as steps.

Every epoch of a group is one step: the entry that opened it and each reason it gives, what the target moved
from whom to whom, when each member gave up and took what it had to, and when the group was stable again.
The terms of the shard stand between them, since a restart explains a silence. What the log does not say is
not guessed: an epoch that was overtaken says so, and a cause that was inferred is marked.

The builder walks the entries once, in order, and holds one `GroupTrack`; memory grows with the number of
epochs and not with the length of the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from history.reading.catalog import CatalogHistory, TopicChange, changes_between
from history.render import LOCAL, MemberNames, TimeStyle, ranges
from history.state.track import GroupTrack, MemberTrack, Partition, Partitions, grouped
from history.words import Speaker, cause_words, is_takeover, reasons_words, term_words
from records import Cause, Certainty, Entry, RecordType, TermStartValue, Trigger

SETTLED_STATES = ("Stable", "Empty")
BESIDE_EPOCHS = (Trigger.MEMBER_AWAY, Trigger.MEMBER_REPLACED, Trigger.ASSIGNMENT_INSTALLED)
"""They open no epoch, and explain why somebody's partitions were idle or changed hands: the comings and
goings of static members, and a target that a member computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Partitions of one topic whose place in the target changed; ``None`` is nobody."""

    topic: str
    partitions: tuple[int, ...]
    source: str | None
    target: str | None

    def words(self) -> str:
        source, target = self.source or "nobody", self.target or "nobody"
        return f"{self.topic} {ranges(self.partitions)}: {source} -> {target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """A member's progress inside an epoch: it released partitions, or reached the epoch, or both."""

    member: str
    index: int
    timestamp_ms: int
    after_ms: int
    """Since the epoch opened."""
    released: str = ""
    """Partitions that it gave up, in words; empty when it only reached the epoch."""
    reached: bool = False
    took: str = ""
    """Partitions that it got, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStep:
    """One group epoch, from the entry that opened it to the next one."""

    kind: str = "epoch"
    index: int
    timestamp_ms: int
    epoch_before: int
    """0 for a new group."""
    epoch: int
    trigger: str
    why: tuple[str, ...]
    inferred: bool
    members: tuple[str, ...]
    """Ids of the members that the reasons name."""
    away: tuple[str, ...]
    """Ids of the static members that were away when it began."""
    evidence: tuple[str, ...] = ()
    """What the node noted beside the log, in words."""
    moves: tuple[Move, ...]
    acknowledgements: tuple[Acknowledgement, ...]
    settled_index: int | None
    """The entry after which the group was first Stable (or Empty) in this epoch; ``None``: never."""
    took_ms: int | None
    state: str
    """The state that the epoch ended in."""
    overtaken_by: int | None
    """The next epoch, where that began before this one was settled."""
    owners: dict[str, str]
    """Member -> partitions in words, at the end of the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TermStep:
    """A term of the group's shard began: a start, a failover, a hand-over."""

    kind: str = "term"
    index: int
    timestamp_ms: int
    term: int
    node_id: int
    previous_leader: int
    is_takeover: bool
    """A failover or a hand-over; ``why`` says how long the shard was without a leader at most."""
    why: str
    silent_ms: int | None
    """Since the entry before, whatever it was; ``None`` at the first entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteStep:
    """Something beside the epochs: the group was deleted, entries are missing, a request was refused."""

    kind: str = "note"
    index: int | None
    timestamp_ms: int
    text: str


Step = EpochStep | TermStep | NoteStep


@dataclass(slots=True)
class _OpenEpoch:
    """An `EpochStep` while its epoch goes on."""

    index: int
    timestamp_ms: int
    epoch_before: int
    epoch: int
    cause: Cause
    why: tuple[str, ...]
    away: frozenset[str]
    target_before: dict[Partition, str]
    acknowledgements: list[Acknowledgement] = field(default_factory=list)
    moves: tuple[Move, ...] = ()
    settled_index: int | None = None
    settled_ms: int = 0
    state: str = ""
    overtaken_by: int | None = None
    owners: dict[str, str] = field(default_factory=dict)

    def frozen(self) -> EpochStep:
        settled = self.settled_index is not None
        return EpochStep(
            index=self.index,
            timestamp_ms=self.timestamp_ms,
            epoch_before=self.epoch_before,
            epoch=self.epoch,
            trigger=trigger_name(self.cause.trigger),
            why=self.why,
            inferred=self.cause.certainty != Certainty.RECORDED,
            members=tuple(dict.fromkeys(r.member_id for r in self.cause.reasons if r.member_id)),
            away=tuple(sorted(self.away)),
            moves=self.moves,
            acknowledgements=tuple(self.acknowledgements),
            settled_index=self.settled_index,
            took_ms=self.settled_ms - self.timestamp_ms if settled else None,
            state=self.state,
            overtaken_by=None if settled else self.overtaken_by,
            owners=self.owners,
        )


class Storyteller:
    """Builds the steps of one group from the entries of its shard, given in order."""

    def __init__(self, group_id: str, catalog: CatalogHistory, style: TimeStyle = LOCAL) -> None:
        self.track = GroupTrack(group_id)
        self.names = MemberNames()
        self.described: dict[str, str] = {}
        self._steps: list[_OpenEpoch | TermStep | NoteStep] = []
        self._catalog = catalog
        self._style = style
        self._open: _OpenEpoch | None = None
        self._seen: dict[str, TopicChange] = {}
        self._last_ms: int | None = None

    def passed(self, timestamp_ms: int) -> None:
        """An entry of the shard that says nothing about the group."""
        self._last_ms = timestamp_ms

    def term(self, index: int, timestamp_ms: int, term: TermStartValue) -> None:
        """A term of the shard begins."""
        silent_ms = None if self._last_ms is None else timestamp_ms - self._last_ms
        self._steps.append(
            TermStep(
                index=index,
                timestamp_ms=timestamp_ms,
                term=term.term,
                node_id=term.node_id,
                previous_leader=term.previous_leader,
                is_takeover=is_takeover(term),
                why=term_words(term, silent_ms),
                silent_ms=silent_ms,
            )
        )
        self._last_ms = timestamp_ms

    def note(self, index: int | None, timestamp_ms: int, text: str) -> None:
        """Something beside the entries, at its place among them."""
        self._steps.append(NoteStep(index=index, timestamp_ms=timestamp_ms, text=text))

    def go_on_from(self, track: GroupTrack) -> None:
        """Goes on from a snapshot, where the entries before it are missing."""
        self._conclude()
        self._open = None
        self.track = track
        self._learn()

    def entry(self, index: int, timestamp_ms: int, entry: Entry) -> None:
        """An entry about the group; ``entry.records`` holds the group's own ones only."""
        track = self.track
        epoch_before, existed = track.epoch, track.exists
        members_before, topics_before = dict(track.members), track.topics
        target_before: dict[Partition, str] = {}
        if any(raw.type == RecordType.CONSUMER_GROUP_METADATA for raw in entry.records):
            target_before = self._conclude()
        for raw in entry.records:
            track.apply(raw)
        self._learn()
        self._seen = changes_between(topics_before, track.topics) if topics_before else {}
        away = frozenset(member_id for member_id, member in members_before.items() if member.is_away)
        speaker = self.speaker(entry.cause, away)
        if entry.cause.trigger in BESIDE_EPOCHS:
            self.note(index, timestamp_ms, cause_words(entry.cause, timestamp_ms, speaker))
        if existed and not track.exists:
            self._open = None
            said = reasons_words(entry.cause, timestamp_ms, speaker)[0]
            self.note(index, timestamp_ms, f"the group is gone: {said}")
        elif track.epoch != epoch_before and track.epoch >= 0:
            self._begin(index, timestamp_ms, epoch_before, entry.cause, speaker, target_before)
        if self._open is not None:
            self._progress(self._open, index, timestamp_ms, members_before)
        self._last_ms = timestamp_ms

    def finish(self) -> tuple[Step, ...]:
        """The steps; call once, after the last entry."""
        self._conclude()
        return tuple(step.frozen() if isinstance(step, _OpenEpoch) else step for step in self._steps)

    def say_member(self, member_id: str) -> str:
        """``m3 (client app-1, 127.0.0.1)``"""
        if not member_id:
            return "a member that the log does not name"
        name, description = self.names.name(member_id), self.described.get(member_id)
        return f"{name} ({description})" if description else name

    def speaker(self, cause: Cause, away: frozenset[str] = frozenset()) -> Speaker:
        changes = self._catalog.words_for(cause.refs, self._seen)
        return Speaker(self._style, self.say_member, self._catalog.name, changes, away)

    def _learn(self) -> None:
        self._catalog.learn(self.track.topics)
        for member_id, member in self.track.members.items():
            if member.described and member_id not in self.described:
                self.described[member_id] = describe_client(member)
                self.names.name(member_id)

    def _begin(
        self,
        index: int,
        timestamp_ms: int,
        epoch_before: int,
        cause: Cause,
        speaker: Speaker,
        target_before: dict[Partition, str],
    ) -> None:
        if self._open is not None:
            self._open.overtaken_by = self.track.epoch
        self._open = _OpenEpoch(
            index=index,
            timestamp_ms=timestamp_ms,
            epoch_before=max(epoch_before, 0),
            epoch=self.track.epoch,
            cause=cause,
            why=reasons_words(cause, timestamp_ms, speaker),
            away=speaker.away,
            target_before=target_before,
        )
        self._steps.append(self._open)

    def _progress(
        self, step: _OpenEpoch, index: int, timestamp_ms: int, before: dict[str, MemberTrack]
    ) -> None:
        """Notes which members moved on by this entry, and whether the group is settled now."""
        for member_id, new in self.track.members.items():
            old = before.get(member_id) or MemberTrack(member_id=member_id)
            released, took = old.owned - new.owned, new.assigned - old.owned
            reached = new.epoch == step.epoch and old.epoch != step.epoch
            if old is new or not (released or took or reached):
                continue
            step.acknowledgements.append(
                Acknowledgement(
                    member=self.names.name(member_id),
                    index=index,
                    timestamp_ms=timestamp_ms,
                    after_ms=timestamp_ms - step.timestamp_ms,
                    released=self._partitions(released),
                    took=self._partitions(took),
                    reached=reached,
                )
            )
        if step.settled_index is None and self.track.state in SETTLED_STATES:
            step.settled_index, step.settled_ms = index, timestamp_ms

    def _conclude(self) -> dict[Partition, str]:
        """Brings the open epoch up to date with its end; returns the target as it stands."""
        target = self.track.target_owners()
        step = self._open
        if step is not None:
            step.moves = self._moves(step.target_before, target)
            step.state = self.track.state
            step.owners = {
                self.names.name(member_id): self._partitions(member.owned)
                for member_id, member in self.track.members.items()
            }
        return target

    def _partitions(self, parts: Partitions) -> str:
        return Speaker(topic=self._catalog.name).partitions(grouped(parts)) if parts else ""

    def _moves(self, before: dict[Partition, str], after: dict[Partition, str]) -> tuple[Move, ...]:
        moved: dict[tuple[str, str | None, str | None], list[int]] = {}
        for partition in before.keys() | after.keys():
            source, target = before.get(partition), after.get(partition)
            if source != target:
                named = (
                    self._catalog.name(partition[0]),
                    None if source is None else self.names.name(source),
                    None if target is None else self.names.name(target),
                )
                moved.setdefault(named, []).append(partition[1])
        return tuple(
            Move(topic=topic, partitions=tuple(sorted(numbers)), source=source, target=target)
            for (topic, source, target), numbers in sorted(
                moved.items(), key=lambda item: (item[0][0], min(item[1]), item[0][1] or "", item[0][2] or "")
            )
        )


def describe_client(member: MemberTrack) -> str:
    """``client app-1, 127.0.0.1``, as far as the member said."""
    host = member.client_host.removeprefix("/")
    parts = [f"client {member.client_id}" if member.client_id else "", host]
    if member.instance_id:
        parts.append(f"instance {member.instance_id}")
    return ", ".join(part for part in parts if part)


def trigger_name(trigger: int) -> str:
    """``MEMBER_JOINED``; a number that this release does not know as that number."""
    try:
        return Trigger(trigger).name
    except ValueError:
        return str(trigger)
