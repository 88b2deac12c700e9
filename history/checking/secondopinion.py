"""The coordinator's projection compared with its records, without the code that applied them.

A group is a function of the newest value of each of its keys (`coordinator.state.model`). So each of these
values must be what is projected under its key, and nothing else may be. `Projection` also keeps indexes
(owners, subscription counts, votes) up to date record by record; here they are computed again from the
members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from coordinator.state.group_records import projected
from coordinator.state.model import Group, Member
from coordinator.state.projection import OldGroupKey, OldGroupValue, Projection
from records import MemberState, RawRecord, TopicPartitions, decode_key_and_value


def disagreements(projection: Projection, newest: Iterable[RawRecord]) -> list[str]:
    """Every difference, as a sentence; [] if there is none.

    ``newest`` holds the newest record of each key of the shard's groups, without offsets and tombstones."""
    found: list[str] = []
    number_of: Counter[str] = Counter()
    old: dict[OldGroupKey, OldGroupValue] = {}
    for raw in newest:
        key, value = decode_key_and_value(raw)
        if isinstance(key, OldGroupKey):
            assert isinstance(value, OldGroupValue)
            old[key] = value
            continue
        number_of[key.group_id] += 1
        group = projection.groups.get(key.group_id)
        if group is None or projected(group, key) != value:
            found.append(f"the projection differs from the newest record with the key {key}")
    for old_key in sorted(old.keys() | projection.old_groups.keys(), key=lambda one: one.group_id):
        if old.get(old_key) != projection.old_groups.get(old_key):
            found.append(f"the projection differs from the newest record with the key {old_key}")
    for group_id, group in sorted(projection.groups.items()):
        differing = list(_indexes(group))
        if _number_of_values(group) != number_of[group_id]:
            differing.append(f"{_number_of_values(group)} values, but {number_of[group_id]} records")
        found += [f"group {group_id}: {what}" for what in differing]
    return found


def _number_of_values(group: Group) -> int:
    own = (group.metadata, group.target_metadata, group.partition_metadata, group.classic)
    of_members = [value for m in group.members.values() for value in (m.metadata, m.current_value)]
    return sum(value is not None for value in (*own, *of_members)) + len(group.target) + len(group.regexes)


def _indexes(group: Group) -> Iterator[str]:
    owners: dict[bytes, dict[int, str]] = {}
    subscriptions: Counter[str] = Counter()
    regexes: Counter[str] = Counter()
    votes: Counter[str] = Counter()
    stable: Counter[int] = Counter()
    statics: dict[str, str] = {}
    num_members = 0
    for member in group.members.values():
        yield from _current(member)
        for parts in (member.current.assigned, member.current.pending):
            for topic_id, partitions in parts.items():
                owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member.member_id))
        if member.metadata is not None:
            num_members += 1
            subscriptions.update(member.metadata.subscribed_topic_names)
            if member.current.state is MemberState.STABLE:
                stable[member.current.epoch] += 1
            if member.metadata.subscribed_topic_regex:
                regexes[member.metadata.subscribed_topic_regex] += 1
            if member.metadata.server_assignor is not None:
                votes[member.metadata.server_assignor] += 1
            if member.metadata.instance_id is not None:
                statics[member.metadata.instance_id] = member.member_id
    for regex in regexes:
        subscriptions.update(group.resolved(regex))
    for name, kept, computed in (
        ("owners", group.owners, owners),
        ("subscriptions", group.subscriptions, subscriptions),
        ("subscribers of expressions", group.regex_subscribers, regexes),
        ("assignor votes", group.server_assignors, votes),
        ("instance ids", group.static_members, statics),
        ("STABLE members by epoch", group.stable_at, stable),
        ("number of members", group.num_members, num_members),
    ):
        if kept != computed:
            yield f"the index of {name} is {kept}, but the members give {computed}"


def _current(member: Member) -> Iterator[str]:
    value, current = member.current_value, member.current
    for name, kept, written in (
        ("epoch", current.epoch, 0 if value is None else value.member_epoch),
        (
            "assigned partitions",
            _flat(current.assigned),
            _listed(() if value is None else value.assigned_partitions),
        ),
        (
            "pending partitions",
            _flat(current.pending),
            _listed(() if value is None else value.partitions_pending_revocation),
        ),
    ):
        if kept != written:
            yield f"the {name} of {member.member_id} are {kept}, the record says {written}"


def _flat(parts: Mapping[bytes, Mapping[int, int]]) -> set[tuple[bytes, int]]:
    return {(topic_id, number) for topic_id, numbers in parts.items() for number in numbers}


def _listed(topics: Iterable[TopicPartitions]) -> set[tuple[bytes, int]]:
    return {(topic.topic_id, number) for topic in topics for number in topic.partitions}
