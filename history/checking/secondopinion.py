"""The coordinator's projection compared with a second, independent reading of its records.

`Projection` keeps indexes (owners, subscription counts, votes) up to date record by record. Here they are
recomputed from the members, and the members are compared with `GroupView`, which shares no code with the
coordinator. Where the two agree, it is not by an accident of one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from coordinator.state.model import Group
from coordinator.state.projection import Projection
from history.state.group_view import NO_EPOCH, GroupView, Partitions, flat


def disagreements(projection: Projection, tracks: Mapping[str, GroupView]) -> list[str]:
    """Every difference, as a sentence; [] if the two agree."""
    found: list[str] = []
    for group_id in sorted({*projection.groups, *(g for g, view in tracks.items() if view.exists)}):
        group, view = projection.groups.get(group_id), tracks.get(group_id)
        if group is None or view is None:
            where = "the records" if group is None else "the projection"
            found.append(f"group {group_id} is only in {where}")
            continue
        found.extend(f"group {group_id}: {what}" for what in (*_indexes(group), *_against(group, view)))
    return found


def _indexes(group: Group) -> list[str]:
    owners: dict[bytes, dict[int, str]] = {}
    subscriptions: Counter[str] = Counter()
    regexes: Counter[str] = Counter()
    votes: Counter[str] = Counter()
    statics: dict[str, str] = {}
    for member in group.members.values():
        for parts in (member.current.assigned, member.current.pending):
            for topic_id, partitions in parts.items():
                owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member.member_id))
        if member.metadata is not None:
            subscriptions.update(member.metadata.subscribed_topic_names)
            if member.metadata.subscribed_topic_regex:
                regexes[member.metadata.subscribed_topic_regex] += 1
            if member.metadata.server_assignor is not None:
                votes[member.metadata.server_assignor] += 1
            if member.metadata.instance_id is not None:
                statics[member.metadata.instance_id] = member.member_id
    for regex in regexes:
        subscriptions.update(group.resolved(regex))
    kept_and_computed = (
        ("owners", group.owners, owners),
        ("subscriptions", group.subscriptions, subscriptions),
        ("subscribers of expressions", group.regex_subscribers, regexes),
        ("assignor votes", group.server_assignors, votes),
        ("instance ids", group.static_members, statics),
        ("number of members", group.num_members, len(list(group.joined()))),
    )
    return [
        f"the index of {name} is {kept}, the members say {computed}"
        for name, kept, computed in kept_and_computed
        if kept != computed
    ]


def _against(group: Group, view: GroupView) -> list[str]:
    seen = [
        ("epoch", group.epoch, max(view.epoch, 0)),
        ("assignment epoch", group.assignment_epoch, max(view.assignment_epoch, 0)),
        ("members", set(group.members), set(view.members)),
        ("target", {m: flat(value.topic_partitions) for m, value in group.target.items()}, view.target),
    ]
    for member_id in set(group.members) & set(view.members):
        current, known = group.members[member_id].current, view.members[member_id]
        seen += [
            (f"epoch of {member_id}", current.epoch, 0 if known.epoch == NO_EPOCH else known.epoch),
            (f"assigned partitions of {member_id}", _flat(current.assigned), known.assigned),
            (f"pending partitions of {member_id}", _flat(current.pending), known.pending),
        ]
    return [f"the projection has {name} {one}, the records {two}" for name, one, two in seen if one != two]


def _flat(parts: Mapping[bytes, Mapping[int, int]]) -> Partitions:
    return frozenset(
        (topic_id, partition) for topic_id, partitions in parts.items() for partition in partitions
    )
