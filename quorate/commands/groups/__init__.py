"""`quorate groups …`: the live view of consumer groups, and changes to them.

Their history is in `quorate log explain`.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from quorate.commands.groups.config import config
from quorate.commands.groups.delete_offsets import delete_offsets
from quorate.commands.groups.describe import describe
from quorate.commands.groups.reset_offsets import reset_offsets
from quorate.commands.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    Group,
    Json,
    Timeout,
    argument,
    connect,
    new_app,
    option,
)
from quorate.errors import CommandError, ExitCode
from quorate.output import print_json, print_table, say

if TYPE_CHECKING:
    from quorate.groupclient import MemberInfo

app = new_app("List, describe, change and delete consumer groups.")


STATES = (
    "Empty", "Assigning", "Reconciling", "Stable", "Dead", "PreparingRebalance", "CompletingRebalance",
)  # fmt: skip
"""Kafka's group states, including those of classic groups."""
TYPES = ("consumer", "classic", "share", "streams")


@app.command("list")
def list_groups(
    state: Annotated[str, option("--state", "STATE[,STATE]", "Only groups in one of these states.")] = "",
    group_type: Annotated[str, option("--type", "TYPE[,TYPE]", "Only groups of these types.")] = "",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """List every group with its state.

    Example: quorate groups list --state stable,reconciling
    """
    states, types = _filter(state, STATES, "--state"), _filter(group_type, TYPES, "--type")
    with connect(bootstrap, timeout_s) as client:
        groups = client.groups(states, types)
    if json:
        print_json({"groups": [dataclasses.asdict(group) for group in groups]})
    else:
        rows = [(group.group_id, group.state, group.group_type) for group in groups]
        print_table(
            ("GROUP", "STATE", "TYPE"), rows, empty="no such groups" if states or types else "no groups"
        )


app.command("describe")(describe)
app.command("config")(config)


@app.command("delete")
def delete(
    groups: Annotated[list[str], argument("GROUP", "Ids of groups without members.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Delete groups that have no members, with their offsets.

    Example: quorate groups delete billing
    """
    with connect(bootstrap, timeout_s) as client:
        for group_id in groups:
            client.delete_group(group_id)
            if json:
                print_json({"deleted": group_id})
            else:
                say(f"deleted group {group_id}")


@app.command("remove-member")
def remove_member(
    group: Group,
    members: Annotated[list[str], argument("MEMBER", "Member ids or instance ids.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Remove members from a group: their partitions go to the others at once.

    A consumer that still runs is fenced and joins again, so stop it first. A static member that is away loses
    its place.

    Example: quorate groups remove-member billing web-1
    """
    with connect(bootstrap, timeout_s) as client:
        there = client.describe_group(group).members
        found = [_member_named(text, there, group) for text in members]
        client.remove_members(group, found)
    for member in found:
        if json:
            print_json({"removed": member.member_id, "instance_id": member.instance_id, "group": group})
        else:
            say(f"removed {_called(member)} from group {group}")


app.command("delete-offsets")(delete_offsets)
app.command("reset-offsets")(reset_offsets)


def _filter(text: str, known: Sequence[str], option: str) -> list[str]:
    """The names that an option lists, in Kafka's spelling; raises `CommandError` (usage)."""
    by_lower = {name.lower(): name for name in known}
    names = [part.strip() for part in text.split(",") if part.strip()]
    for name in names:
        if name.lower() not in by_lower:
            close = difflib.get_close_matches(name.lower(), by_lower, n=1)
            hint = f"did you mean {by_lower[close[0]]}?" if close else "known: " + ", ".join(known)
            raise CommandError(f"{option} {name!r} is unknown", hint=hint, code=ExitCode.USAGE)
    return [by_lower[name.lower()] for name in names]


def _member_named(text: str, members: Sequence[MemberInfo], group_id: str) -> MemberInfo:
    """The member with that member id, else the one with that instance id."""
    for member in [
        *(member for member in members if member.member_id == text),
        *(member for member in members if member.instance_id == text),
    ]:
        return member
    raise CommandError(
        f"group {group_id!r} has no member {text!r}, neither by member id nor by instance id",
        hint=f"`quorate groups describe {group_id}` lists its members",
        code=ExitCode.REFUSED,
    )


def _called(member: MemberInfo) -> str:
    name = f"instance {member.instance_id}, " if member.instance_id else ""
    return f"member {member.member_id} ({name}client {member.client_id or '-'})"
