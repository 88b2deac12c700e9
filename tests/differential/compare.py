"""Replies of both sides, compared field by field.

A reply becomes a tree of plain values in which everything a server may choose has the script's name: members
their letter, topics their label, epochs an `Epoch`. The two trees are then walked together. Epochs must map
onto each other in order: Kafka's first one may be 2 and ours 1, but equal ones stay equal and later ones
later. Messages are compared only by presence. With uniform, assignments are compared by size per member, as
Kafka breaks ties by hash order. Where even sizes depend on ties, only the other fields are compared, and
`settled.py` judges each side's settled group.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from tests.differential.asked import Asked
from tests.differential.embedded import partitions_of, subscription_of
from tests.differential.side import Side
from wire.apis import ApiKey
from wire.schema import Message

BROKER_SOURCES: Final = (4, 5)
"""The broker's own configuration, and its default."""


class Detail(Enum):
    """The precision with which assignments are compared."""

    PARTITIONS = "every partition"
    SIZES = "how many each member has"
    SETTLED = "nothing before the group has settled"


@dataclass(frozen=True, slots=True)
class Epoch:
    """A group's or member's epoch, which each side numbers in its own way; below 1 it is a code."""

    number: int

    def __str__(self) -> str:
        return f"epoch {self.number}"


@dataclass(frozen=True, slots=True)
class Difference:
    """One field of one reply that differs."""

    api: str
    path: str
    kafka: Any
    ours: Any

    def __str__(self) -> str:
        return f"{self.api} {self.path}: Kafka {self.kafka}, Quorate {self.ours}"


class EpochMap:
    """The mapping from Kafka's epochs to ours, as far as epochs have been compared."""

    def __init__(self) -> None:
        self._kafka: list[int] = []
        self._ours: list[int] = []

    def agrees(self, kafka: Epoch, ours: Epoch) -> bool:
        """Return whether the two epochs fit together, given all pairs so far."""
        if kafka.number <= 0 or ours.number <= 0:
            return kafka == ours
        at = bisect_left(self._kafka, kafka.number)
        if at < len(self._kafka) and self._kafka[at] == kafka.number:
            return self._ours[at] == ours.number
        return at == bisect_left(self._ours, ours.number) and ours.number not in self._ours

    def begins_again(self, kafka: Epoch, ours: Epoch) -> bool:
        """Forget all pairs if both are first epochs: a group without members became one of the other kind."""
        if ours.number != 1 or kafka.number not in (1, 2):
            return False
        self._kafka, self._ours = [], []
        return True

    def meet(self, kafka: Epoch, ours: Epoch) -> None:
        if kafka.number > 0 and kafka.number not in self._kafka:
            at = bisect_left(self._kafka, kafka.number)
            self._kafka.insert(at, kafka.number)
            self._ours.insert(at, ours.number)

    def __str__(self) -> str:
        return ", ".join(f"{kafka}→{ours}" for kafka, ours in zip(self._kafka, self._ours, strict=True))


def differences(
    asked: Asked, trees: tuple[Any, Any], epochs: EpochMap, *, is_mixed: bool = False
) -> list[Difference]:
    """Return the differences between the two trees; epochs that agree are added to `epochs`."""
    found = []
    for path, kafka, ours in _walk("", *trees):
        if isinstance(kafka, Epoch) and isinstance(ours, Epoch):
            if epochs.agrees(kafka, ours) or (is_mixed and epochs.begins_again(kafka, ours)):
                epochs.meet(kafka, ours)
                continue
        elif kafka == ours:
            continue
        found.append(Difference(asked.api.name, path, kafka, ours))
    return found


def _walk(path: str, kafka: Any, ours: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for name in [*kafka, *(name for name in ours if name not in kafka)]:
            yield from _walk(f"{path}.{name}" if path else str(name), kafka.get(name), ours.get(name))
    elif isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
        for position, (one, other) in enumerate(zip(kafka, ours, strict=True)):
            yield from _walk(f"{path}[{position}]", one, other)
    else:
        yield path, kafka, ours


# ---- trees ----


def tree_of(
    side: Side, asked: Asked, answer: Message, group_id: str, detail: Detail, *, is_mixed: bool = False
) -> Any:
    """Convert a reply to a tree in the script's names; in a mixed group, generations are epochs."""
    tree = _plain(answer, asked.version)
    shape = _Shape(side, group_id, detail)
    match asked.api:
        case ApiKey.CONSUMER_GROUP_HEARTBEAT:
            shape.heartbeat(tree)
        case ApiKey.CONSUMER_GROUP_DESCRIBE:
            for group in tree["groups"]:
                shape.described(group)
        case ApiKey.LIST_GROUPS:
            tree["groups"] = [group for group in tree["groups"] if group["group_id"] == group_id]
        case ApiKey.OFFSET_COMMIT | ApiKey.OFFSET_DELETE:
            shape.topics(tree, is_positional=asked.is_positional)
        case ApiKey.OFFSET_FETCH:
            for group in tree["groups"]:
                shape.topics(group)
        case ApiKey.DESCRIBE_GROUPS:
            for group in tree["groups"]:
                _presence(group)
                shape.classic_members(group)
                if is_mixed:
                    _embedded(group, "member_metadata", subscription_of)
                    _embedded(group, "member_assignment", partitions_of)
        case ApiKey.JOIN_GROUP:
            tree["member_id"] = side.who_is(tree["member_id"])
            tree["leader"] = side.who_is(tree["leader"])
            shape.classic_members(tree)
            if is_mixed:
                tree["generation_id"] = Epoch(tree["generation_id"])
                _embedded(tree, "metadata", subscription_of)
        case ApiKey.SYNC_GROUP if is_mixed:
            tree["assignment"] = partitions_of(tree["assignment"])
        case ApiKey.INIT_PRODUCER_ID:
            tree["producer_id"] = tree["producer_id"] >= 0
            tree["producer_epoch"] = tree["producer_epoch"] >= 0
        case ApiKey.TXN_OFFSET_COMMIT:
            shape.topics(tree)
        case ApiKey.LEAVE_GROUP:
            for member in tree.get("members", ()):
                member["member_id"] = side.who_is(member["member_id"])
        case ApiKey.DESCRIBE_CONFIGS:
            for result in tree["results"]:
                _presence(result)
                for config in result["configs"]:
                    _configured(config)
                result["configs"].sort(key=lambda config: str(config["name"]))
        case _:
            pass
    return tree


def _plain(value: Any, version: int) -> Any:
    if isinstance(value, Message):
        return {
            name: _plain(getattr(value, name), version)
            for name, wire in value.SCHEMA.fields
            if version in wire.versions
        }
    if isinstance(value, list):
        return [_plain(one, version) for one in value]
    return value


def _presence(tree: dict[str, Any]) -> None:
    """Replace the message by whether there is one, as each side words its own."""
    if "error_message" in tree:
        tree["error_message"] = bool(tree["error_message"])


def _embedded(tree: dict[str, Any], name: str, read: Callable[[bytes], Any]) -> None:
    """Replace what clients embed by what it says: Kafka's order of topics is that of a hash map."""
    for member in tree["members"]:
        member[name] = read(member[name])


def _configured(config: dict[str, Any]) -> None:
    """Reduce a config to the group's value and the broker's.

    Each side has its own defaults, and its own source for the broker's value.
    """
    config["documentation"] = bool(config["documentation"])
    sources = [synonym["source"] for synonym in config["synonyms"]]
    of_broker = [place for place, source in enumerate(sources) if source in BROKER_SOURCES]
    del config["synonyms"][of_broker[0] + 1 if of_broker else len(sources) :]
    for value in (config, *config["synonyms"]):
        name = "config_source" if "config_source" in value else "source"
        value[name] = "broker" if value[name] in BROKER_SOURCES else value[name]


@dataclass(frozen=True, slots=True)
class _Shape:
    side: Side
    group_id: str
    detail: Detail

    def heartbeat(self, tree: dict[str, Any]) -> None:
        _presence(tree)
        tree["member_id"] = self.side.who_is(tree["member_id"])
        if self.detail is Detail.SETTLED:
            del tree["member_epoch"], tree["assignment"]
            return
        tree["member_epoch"] = Epoch(tree["member_epoch"])
        if tree["assignment"] is not None:
            tree["assignment"] = self.assignment(tree["assignment"])

    def described(self, group: dict[str, Any]) -> None:
        _presence(group)
        group["group_epoch"] = Epoch(group["group_epoch"])
        group["assignment_epoch"] = Epoch(group["assignment_epoch"])
        for member in group["members"]:
            member["member_id"] = self.side.who_is(member["member_id"])
            member["member_epoch"] = Epoch(member["member_epoch"])
            member["subscribed_topic_names"].sort()
            member["assignment"] = self.assignment(member["assignment"])
            member["target_assignment"] = self.assignment(member["target_assignment"])
        group["members"] = {member["member_id"]: member for member in group["members"]}

    def classic_members(self, tree: dict[str, Any]) -> None:
        """Sort the members: Kafka has them in hash order."""
        for member in tree["members"]:
            member["member_id"] = self.side.who_is(member["member_id"])
        tree["members"].sort(key=lambda member: str(member["member_id"]))

    def assignment(self, tree: dict[str, Any]) -> Any:
        by_label = {
            self.side.label_of(topic["topic_id"]): sorted(topic["partitions"])
            for topic in tree["topic_partitions"]
        }
        by_label = {label: partitions for label, partitions in sorted(by_label.items()) if partitions}
        return by_label if self.detail is Detail.PARTITIONS else sum(map(len, by_label.values()))

    def topics(self, tree: dict[str, Any], *, is_positional: bool = False) -> None:
        for topic in tree["topics"]:
            if "topic_id" in topic:
                topic["topic_id"] = self.side.label_of(topic["topic_id"])
            for part in topic["partitions"]:
                if is_positional:
                    part["partition_index"] = "held"
            topic["partitions"].sort(key=lambda part: str(part["partition_index"]))
        tree["topics"].sort(key=lambda topic: (topic.get("name", ""), topic.get("topic_id", "")))
