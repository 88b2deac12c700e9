"""The metadata shard as history: what each of its entries did to the topics.

The cause of a group's entry refers to a topic change by (metadata shard, index). This module maps that index
to a description of the change, and keeps the names of all topic ids that ever existed, so that a partition of
a topic deleted long ago is still shown by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Protocol

from history.render import plural
from records import RawRecord, RecordType, Ref, TopicKey, TopicValue, decode_key, decode_value
from records.ids import METADATA_SHARD, topic_id_text

TopicShape = tuple[bytes, int]
"""A topic's id and number of partitions."""
DatedShapes = Sequence[tuple[int, TopicShape]]
"""The shapes that a topic had one after the other, each with the epoch ms at which it began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """One topic before and after; ``None``: no topic of that name existed."""

    name: str
    before: TopicShape | None
    after: TopicShape | None

    def words(self) -> str:
        """``was created with 12 partitions``, ``grew from 12 to 24 partitions``, ``was deleted``."""
        if self.before is None:
            return "was created" if self.after is None else f"was created with {_count(self.after)}"
        if self.after is None:
            return f"was deleted (it had {_count(self.before)})"
        if self.before[0] != self.after[0]:
            return f"was deleted and created again: {self.before[1]} partitions before, {self.after[1]} now"
        verb = "grew" if self.after[1] > self.before[1] else "shrank"
        return f"{verb} from {self.before[1]} to {_count(self.after)}"


def _count(shape: TopicShape) -> str:
    return plural(shape[1], "partition")


def changes_between(
    before: Mapping[str, TopicShape], after: Mapping[str, TopicShape]
) -> dict[str, TopicChange]:
    """Each topic that changed between two views, by name."""
    return {
        name: TopicChange(name=name, before=before.get(name), after=after.get(name))
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    }


def shape_at(shapes: DatedShapes, name: str, ms: int) -> TopicShape:
    """The id and the partitions that the topic of this name had at a time.

    A topic that no record describes gets an id that is a function of its name, and no partitions."""
    if not shapes:
        return blake2b(name.encode(errors="surrogatepass"), digest_size=16).digest(), 0
    begun = [shape for from_ms, shape in shapes if from_ms <= ms]
    return begun[-1] if begun else shapes[0][1]


class TopicNames(Protocol):
    """Names of topics by id, and what they were by name."""

    def name(self, topic_id: bytes) -> str:
        """The topic's name, or its id in Kafka's text form if no record gives the name."""

    def learn(self, topics: Mapping[str, TopicShape]) -> None:
        """Add names from a group's record 4, for topics that are not known otherwise."""

    def shape(self, name: str, ms: int) -> TopicShape:
        """See `shape_at`."""


@dataclass(slots=True)
class CatalogHistory:
    """Every change of the topics that the directory still holds."""

    changes: dict[int, dict[str, TopicChange]] = field(default_factory=dict)
    names: dict[bytes, str] = field(default_factory=dict)
    shapes: dict[str, list[tuple[int, TopicShape]]] = field(default_factory=dict)
    """Name -> `DatedShapes`."""
    present: bool = False
    """Whether the directory holds the metadata shard; if not, names come from the groups' own records."""
    has_transactions: bool = False
    """Whether producers used transactional ids."""
    _topics: dict[str, TopicShape] = field(default_factory=dict)

    def apply(self, index: int, ms: int, raws: Iterable[RawRecord]) -> None:
        """Apply the records of one entry of the metadata shard, or of its snapshot, written at that time."""
        touched: dict[str, TopicShape | None] = {}
        for raw in raws:
            self.has_transactions |= raw.type == RecordType.TRANSACTION
            if raw.type != RecordType.TOPIC:
                continue
            key, value = decode_key(raw), decode_value(raw)
            if not isinstance(key, TopicKey):
                continue
            touched.setdefault(key.name, self._topics.get(key.name))
            if isinstance(value, TopicValue):
                self._topics[key.name] = (value.topic_id, value.num_partitions)
                self.names[value.topic_id] = key.name
                self.shapes.setdefault(key.name, []).append((ms, self._topics[key.name]))
            else:
                self._topics.pop(key.name, None)
        before = {name: shape for name, shape in touched.items() if shape is not None}
        changed = changes_between(before, {n: self._topics[n] for n in touched if n in self._topics})
        if changed:
            self.changes[index] = changed

    def counts(self) -> dict[str, int]:
        """Topic name -> number of partitions, for the topics that exist now."""
        return {name: shape[1] for name, shape in self._topics.items()}

    def name(self, topic_id: bytes) -> str:
        """The topic's name, or its id in Kafka's text form if no record gives the name."""
        return self.names.get(topic_id) or topic_id_text(topic_id)

    def learn(self, topics: Mapping[str, TopicShape]) -> None:
        """Add names from a group's record 4 (name -> id, count) where no metadata shard gives them."""
        for name, (topic_id, _) in topics.items():
            self.names.setdefault(topic_id, name)

    def shape(self, name: str, ms: int) -> TopicShape:
        return shape_at(self.shapes.get(name, ()), name, ms)

    def words_for(self, refs: Iterable[Ref], seen: Mapping[str, TopicChange]) -> dict[str, str]:
        """Topic name -> what happened to it, with the index in the metadata shard.

        ``seen`` is what the group itself noticed, which may combine several catalog changes. For topics not
        in it, the referenced entries are used.
        """
        indexes = [ref.index for ref in refs if ref.shard == METADATA_SHARD]
        told = {name: change for index in indexes for name, change in self.changes.get(index, {}).items()}
        said: dict[str, str] = {}
        for name, change in {**told, **seen}.items():
            at = [index for index in indexes if name in self.changes.get(index, {})]
            if not at and not self.present:
                at = indexes
            place = f" (metadata index {', '.join(map(str, at))})" if at else ""
            said[name] = change.words() + place
        return said
