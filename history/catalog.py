"""The metadata shard as history: what each of its entries did to the topics.

A group's cause refers to the topic change that it answers by (metadata shard, index). This module keeps
that index -> what changed, in words that need no further reading, and the names of all topic ids there ever
were, so that a partition of a topic deleted long ago is still shown by its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from records import RawRecord, RecordType, Ref, TopicKey, TopicValue, decode_key, decode_value
from records.ids import topic_id_text


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """One topic, before and after; a count of 0 means that there was (or is) none."""

    name: str
    topic_id: bytes
    partitions_before: int
    partitions_after: int

    def words(self) -> str:
        """``was created with 12 partitions``, ``grew from 12 to 24 partitions``, ``was deleted``."""
        before, after = self.partitions_before, self.partitions_after
        if not after:
            return f"was deleted (it had {before} partitions)"
        if not before:
            return f"was created with {after} partition" + ("s" if after != 1 else "")
        if before == after:
            return f"was created again with {after} partitions under a new id"
        return f"{'grew' if after > before else 'shrank'} from {before} to {after} partitions"


@dataclass(slots=True)
class CatalogHistory:
    """Every change of the topics that the directory still holds."""

    changes: dict[int, tuple[TopicChange, ...]] = field(default_factory=dict)
    names: dict[bytes, str] = field(default_factory=dict)
    present: bool = False
    """The metadata shard is in the directory; otherwise names come from the groups' own records."""
    _topics: dict[str, TopicValue] = field(default_factory=dict)

    def apply(self, index: int, raws: Iterable[RawRecord]) -> None:
        """Takes the records of one entry of the metadata shard, or of its snapshot."""
        changed: list[TopicChange] = []
        for raw in raws:
            if raw.type != RecordType.TOPIC:
                continue
            key, after = decode_key(raw), decode_value(raw)
            if not isinstance(key, TopicKey) or not isinstance(after, TopicValue | None):
                continue
            name = key.name
            before = self._topics.get(name)
            if after is None:
                self._topics.pop(name, None)
            else:
                self._topics[name] = after
                self.names[after.topic_id] = name
            subject = after or before
            if subject is not None:
                changed.append(
                    TopicChange(
                        name=name,
                        topic_id=subject.topic_id,
                        partitions_before=before.num_partitions if before else 0,
                        partitions_after=after.num_partitions if after else 0,
                    )
                )
        if changed:
            self.changes[index] = tuple(changed)

    def name(self, topic_id: bytes) -> str:
        """The topic's name; its id in Kafka's text form where no record tells the name."""
        return self.names.get(topic_id) or topic_id_text(topic_id)

    def learn(self, topics: Mapping[str, tuple[bytes, int]]) -> None:
        """Names from a group's record 4 (name -> id, count), for a directory without its metadata shard."""
        for name, (topic_id, _) in topics.items():
            self.names.setdefault(topic_id, name)

    def words_for(self, refs: Iterable[Ref]) -> dict[str, str]:
        """Topic name -> what the referenced entries did to it, each with the index to look at."""
        said: dict[str, str] = {}
        for ref in refs:
            for change in self.changes.get(ref.index, ()) if ref.shard < 0 else ():
                said[change.name] = f"{change.words()} (metadata index {ref.index})"
        return said
