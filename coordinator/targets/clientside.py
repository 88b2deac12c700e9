"""Client-side assignors (KIP-848): which assignor a group uses, and which member is asked to run it.

The choice of assignor is a function of the members' offers (`common_assignor`), so every leader makes the
same choice. The member that computes is volatile state. A *round* (`coordinator.leader_state.clientrounds`)
begins when a target is due, asks one member at a time, each until its own rebalance timeout, and ends with
any new target. A member that exceeds its time, leaves, or installs an invalid target is not asked again in
that round. When no member is left, or after a total time for all of them, the server assignor computes. So no
client can keep a group without a target, whatever its rebalance timeout. A new leader begins a round of its
own.

Invariants: at most one member of a group is chosen at a time; only that member may prepare and install; and
the target it installs is validated against the input it was shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from coordinator.api import Context, DecisionBuilder, Failure, JobKind
from coordinator.group_context import GroupContext
from coordinator.leader_state.clientrounds import Choice, ClientRound
from coordinator.limits import Limits
from coordinator.state.model import Group, Member
from coordinator.targets.target import preferred_assignor
from records import ClientAssignor, ConsumerGroupMemberMetadataValue, MemberState

Offers = Sequence[ClientAssignor]
"""The assignors that one member offers, in order of preference."""


# The members' offers.


def common_assignor(offers: Iterable[Offers]) -> Choice | None:
    """The assignor that all members offer, in overlapping versions; None if there is none.

    Each member votes for the first assignor of its list that qualifies. Ties go to the one that is listed
    higher, by the sum of its positions, and then to the first by name."""
    lists = list(offers)
    common: dict[str, tuple[int, int]] | None = None
    for offered in lists:
        own = {one.name: (one.minimum_version, one.maximum_version) for one in offered}
        if common is None:
            common = own
        else:
            common = {
                name: (max(low, own[name][0]), min(high, own[name][1]))
                for name, (low, high) in common.items()
                if name in own
            }
        if not common:
            return None
    found = {name: versions for name, versions in (common or {}).items() if versions[0] <= versions[1]}
    if not found:
        return None
    votes: Counter[str] = Counter()
    places: Counter[str] = Counter()
    for offered in lists:
        ranked = [one.name for one in offered if one.name in found]
        votes[ranked[0]] += 1
        places.update({name: place for place, name in enumerate(ranked)})
    name = min(found, key=lambda name: (-votes[name], places[name], name))
    return Choice(name, *found[name])


def offers_of(member: Member) -> Offers:
    return member.metadata.assignors if member.metadata is not None else ()


def offer(offers: Offers, name: str) -> ClientAssignor | None:
    """The member's entry for the assignor of that name; None if it has none."""
    return next((one for one in offers if one.name == name), None)


def chosen_assignor(group: Group) -> Choice | None:
    """The client-side assignor for the group's next target; None if the server assignor computes it."""
    return common_assignor(offers_of(member) for member in group.joined())


def assignor_name(group: Group, configured: Sequence[str]) -> str:
    """Name of the assignor that computes for the group, client-side or server-side."""
    choice = chosen_assignor(group)
    return choice.name if choice is not None else preferred_assignor(group, configured)


def change_matters(group: Group, member: Member, new: Offers, limits: Limits) -> bool:
    """Whether a member's new offers require a new target.

    They do if another assignor or version is chosen now, or if the input of the chosen one changed. Changes
    for assignors that are not in use are only stored, as are all changes in a group too large for client-side
    assignors."""
    old = offers_of(member)
    if old == new or group.num_members > limits.client_members_max:
        return False
    others = [offers_of(other) for other in group.joined() if other.member_id != member.member_id]
    before, after = common_assignor([*others, old]), common_assignor([*others, new])
    if before != after:
        return True
    return after is not None and _says(old, after.name) != _says(new, after.name)


def _says(offers: Offers, name: str) -> tuple[int, int, bytes] | None:
    one = offer(offers, name)
    return None if one is None else (one.reason, one.version, one.metadata)


def with_assignors(
    metadata: ConsumerGroupMemberMetadataValue,
    member: Member | None,
    offered: tuple[ClientAssignor, ...] | None,
    *,
    is_join: bool,
) -> ConsumerGroupMemberMetadataValue:
    """Return the metadata with the assignors that a heartbeat offers.

    A heartbeat that does not list any leaves them unchanged. A join lists everything, so a client that
    rejoins without assignors has none."""
    if offered is None:
        if not is_join or not metadata.assignors:
            return metadata
        offered = ()
    return metadata if metadata.assignors == offered else replace(metadata, assignors=offered)


# The choice of the member that computes.


def wait_ms(groups: GroupContext, group: Group, ctx: Context, builder: DecisionBuilder) -> float | None:
    """Time that the chosen member has left to compute the group's target, after choosing one if needed.

    None if the server assignor computes it."""
    round_ = _round(groups, group)
    if round_ is None or round_.is_over:
        return None
    if not round_.chosen:
        _elect(groups, group, round_, ctx)
    elif not _may_compute(group.member(round_.chosen)):
        fail(groups, group, round_, "has left", ctx, builder)
    elif ctx.monotonic_ms >= round_.deadline_ms:
        fail(groups, group, round_, "did not install a target in time", ctx, builder)
    return None if round_.is_over else max(0.0, round_.deadline_ms - ctx.monotonic_ms)


def round_of(groups: GroupContext, group: Group) -> ClientRound | None:
    """The current round in which a member is chosen; None if there is none."""
    round_ = groups.client_side.rounds.get(group.group_id)
    if round_ is None or not round_.chosen or round_.assignment_epoch != group.assignment_epoch:
        return None
    return round_


def assignor_error(groups: GroupContext, group_id: str) -> str | None:
    """The last error of the group's assignors, both client-side and server-side."""
    said = (groups.pacing.errors.get(group_id), groups.client_side.errors.get(group_id))
    return "; ".join(filter(None, said)) or None


def is_chosen(groups: GroupContext, group: Group, member_id: str) -> bool:
    round_ = round_of(groups, group)
    return round_ is not None and round_.chosen == member_id


def fail(
    groups: GroupContext, group: Group, round_: ClientRound, why: str, ctx: Context, builder: DecisionBuilder
) -> None:
    """Exclude the chosen member from this round, and choose another one if any is left."""
    said = f"Assignor {round_.choice.name}: {round_.chosen} {why}; see `quorate docs protocol-extensions`."
    groups.client_side.errors[group.group_id] = said
    if _may_compute(group.member(round_.chosen)):  # leaving meanwhile is not a failure
        builder.failure = Failure(group.group_id, said, JobKind.ASSIGN, round_.chosen)
    round_.failed.add(round_.chosen)
    _elect(groups, group, round_, ctx)


def _round(groups: GroupContext, group: Group) -> ClientRound | None:
    """The round for the group's next target, begun if there is none.

    None if the members have no assignor in common, or the group is too large to be sent to one of them."""
    rounds = groups.client_side.rounds
    round_ = rounds.get(group.group_id)
    is_first = group.target_metadata is None  # an empty target for the current epoch is written then
    began_at = group.epoch if is_first else group.assignment_epoch
    if round_ is not None and round_.assignment_epoch == began_at and round_.epoch == group.epoch:
        return round_
    choice = chosen_assignor(group)
    error = _too_large(group, choice, groups.limits) if choice is not None else None
    if error is not None:
        groups.client_side.errors[group.group_id] = error
        choice = None
    elif choice is None:
        groups.client_side.errors.pop(group.group_id, None)
    if choice is None:
        rounds.pop(group.group_id, None)
        return None
    if round_ is None or round_.assignment_epoch != began_at:
        round_ = rounds[group.group_id] = ClientRound(choice, began_at, group.epoch)
    elif round_.choice != choice:  # all members are asked again, within the same target's remaining time
        round_ = rounds[group.group_id] = ClientRound(choice, began_at, group.epoch, until_ms=round_.until_ms)
    round_.epoch = group.epoch
    return round_


def _elect(groups: GroupContext, group: Group, round_: ClientRound, ctx: Context) -> None:
    """Choose the member that computes: of those left, the first by name among the best qualified.

    Preferred are members that can read the metadata of all others, and among these STABLE ones. If no
    candidate is left or the round's time is over, the round ends."""
    now_ms = ctx.monotonic_ms
    if round_.until_ms is None:
        round_.until_ms = now_ms + groups.limits.client_round_max_ms
    candidates = [
        member for member in group.joined() if member.member_id not in round_.failed and _may_compute(member)
    ]
    round_.prepared = None
    if not candidates or now_ms >= round_.until_ms:
        round_.chosen, round_.is_over = "", True
        groups.client_side.errors[group.group_id] = (
            f"Assignor {round_.choice.name}: no member installed a target, so the server assignor computes "
            f"it. Last error: {groups.client_side.errors.get(group.group_id, 'no member is left')}"
        )
        return
    said = [one for member in group.joined() if (one := offer(offers_of(member), round_.choice.name))]
    written = [one.version for one in said if one.version >= 0]

    def rank(member: Member) -> tuple[bool, bool, bool, str]:
        own = offer(offers_of(member), round_.choice.name)
        reads_all = not written or (
            own is not None and own.minimum_version <= min(written) and max(written) <= own.maximum_version
        )
        is_stable = member.current.state is MemberState.STABLE
        return not reads_all, not is_stable, member.current.epoch == 0, member.member_id

    chosen = min(candidates, key=rank)
    assert chosen.metadata is not None
    timeout_ms = chosen.metadata.rebalance_timeout_ms
    if timeout_ms < 0:  # not given; only in imported logs
        timeout_ms = ctx.settings.for_group(group.group_id).session_timeout_ms
    round_.chosen = chosen.member_id
    round_.deadline_ms = min(now_ms + timeout_ms, round_.until_ms)


def _may_compute(member: Member | None) -> bool:
    """Whether the member exists and is not away."""
    return member is not None and not member.is_away


def _too_large(group: Group, choice: Choice, limits: Limits) -> str | None:
    """The reason why a member cannot compute the target of so large a group; None if it can."""
    partitions = sum(topic.num_partitions for topic in group.topics)
    for what, number, number_max in (
        ("members", group.num_members, limits.client_members_max),
        ("partitions", partitions, limits.client_partitions_max),
        ("bytes of description", size_to_show(group, choice), limits.prepare_bytes_max),
    ):
        if number > number_max:
            return (
                f"Assignor {choice.name}: the group has {number} {what}, more than {number_max}, so the "
                "server assignor computes the target. Split the group."
            )
    return None


MEMBER_BYTES = 48
"""Bytes of a member in the response to Prepare, without its id, topics, metadata and partitions."""


def size_to_show(group: Group, choice: Choice) -> int:
    """Upper bound for the bytes of the group in the response to Prepare."""
    size = sum(32 + len(topic.topic_name) * 3 for topic in group.topics)
    for member in group.joined():
        metadata = member.metadata
        assert metadata is not None
        own = offer(metadata.assignors, choice.name)
        named = len(metadata.subscribed_topic_names) + len(group.resolved(metadata.subscribed_topic_regex))
        size += MEMBER_BYTES + 3 * len(member.member_id) + 16 * named + len(own.metadata if own else b"")
        size += sum(20 + 4 * len(numbers) for numbers in group.target_of(member.member_id).values())
    return size
