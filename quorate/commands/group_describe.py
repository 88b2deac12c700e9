"""`quorate groups describe`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from quorate.commands.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    Group,
    Json,
    Timeout,
    connect,
)
from quorate.output import assignment_text, print_json, print_table

if TYPE_CHECKING:
    from quorate.client import GroupDescription


def describe(
    group: Group,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Show a group's members, who owns what, and the committed offsets.

    Example: quorate groups describe billing
    """
    with connect(bootstrap, timeout_s) as client:
        description = client.describe_group(group)
    if json:
        print_json(dataclasses.asdict(description))
    else:
        _print(description)


def _print(group: GroupDescription) -> None:
    print(
        f"group {group.group_id}: {group.state}, group epoch {group.group_epoch}, "
        f"assignment epoch {group.assignment_epoch}, assignor {group.assignor or '-'}"
    )
    members = [
        (
            member.client_id,
            member.member_id,
            member.client_host,
            member.member_epoch,
            assignment_text(member.assigned),
            "" if member.target == member.assigned else "-> " + assignment_text(member.target),
        )
        for member in group.members
    ]
    print()
    print_table(("CLIENT", "MEMBER", "HOST", "EPOCH", "OWNS", "TARGET"), members, empty="no members")
    offsets = [
        (topic, partition, offset)
        for topic, by_partition in sorted(group.offsets.items())
        for partition, offset in sorted(by_partition.items())
    ]
    print()
    print_table(("TOPIC", "PARTITION", "OFFSET"), offsets, empty="no committed offsets")
