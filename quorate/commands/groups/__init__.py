"""`quorate groups …`: the live view of consumer groups, and changes to them.

Their history is in `quorate log explain`.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

from quorate.addresses import place_of_cluster
from quorate.commands.groups.config import config
from quorate.commands.groups.delete_offsets import delete_offsets
from quorate.commands.groups.describe import describe
from quorate.commands.groups.reset_offsets import reset_offsets
from quorate.commands.options import (
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    CommandGroup,
    GroupNamed,
    GroupsNamed,
    Json,
    Timeout,
    Url,
    argument,
    connect,
    first_group,
    option,
)
from quorate.errors import CommandError, ExitCode
from quorate.output import print_json, print_table, say

if TYPE_CHECKING:
    from quorate.groupclient import MemberInfo
    from quorate.live import LiveView

app = CommandGroup("List, describe, change and delete consumer groups.")


_NAME = re.compile(r"m[1-9][0-9]*")
"""A member's name: m and its number."""

STATES = (
    "Empty", "Assigning", "Reconciling", "Stable", "Dead", "PreparingRebalance", "CompletingRebalance",
)  # fmt: skip
"""Kafka's group states, including those of classic groups."""
TYPES = ("consumer", "classic", "share", "streams")


@app.command("list")
def list_groups(
    state: Annotated[str, option("--state", "STATE[,STATE]", "Only groups in one of these states.")] = "",
    group_type: Annotated[str, option("--type", "TYPE[,TYPE]", "Only groups of these types.")] = "",
    bootstrap: Bootstrap = None,
    url: Url = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """List every group with its state.

    Example: quorate groups list --state stable,reconciling
    """
    states, types = _filter(state, STATES, "--state"), _filter(group_type, TYPES, "--type")
    with connect(place_of_cluster(bootstrap, url), timeout_s) as client:
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
    groups: Annotated[list[str] | None, argument("[GROUP]...", "Ids of groups without members.")] = None,
    named: GroupsNamed = None,
    bootstrap: Bootstrap = None,
    url: Url = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Delete groups that have no members, with their offsets.

    Example: quorate groups delete billing
    """
    first, rest = first_group(groups, named)
    with connect(place_of_cluster(bootstrap, url), timeout_s) as client:
        for group_id in (first, *rest):
            client.delete_group(group_id)
            if json:
                print_json({"deleted": group_id})
            else:
                say(f"deleted group {group_id}")


@app.command("remove-member")
def remove_member(
    words: Annotated[
        list[str] | None,
        argument(
            "[GROUP] MEMBER...",
            "The group (left out with --group), then names as in `describe` (m2), member or instance ids.",
        ),
    ] = None,
    named: GroupNamed = None,
    bootstrap: Bootstrap = None,
    url: Url = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Remove members from a group: their partitions go to the others at once.

    A consumer that still runs is fenced and joins again, so stop it first. A static member that is away loses
    its place.

    Example: quorate groups remove-member billing m2
    """
    from quorate.live import LiveView

    group, members = first_group(words, named, then="MEMBER")
    place = place_of_cluster(bootstrap, url)
    with connect(place, timeout_s) as client:
        there = client.describe_group(group).members
        ids = partial(_ids_by_name, LiveView(place, client.cluster_id(), timeout_s), group)
        found = [_member_named(text, there, group, ids) for text in members]
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


def _ids_by_name(live: LiveView, group_id: str) -> dict[str, str]:
    """The members' names (m2) -> their ids, from the leader; raises `CommandError` if it does not answer."""
    try:
        view = live.group(group_id)
    except CommandError as error:
        raise CommandError(
            f"{error.message}; only the leader knows which member is called m1 or m2",
            hint="set --url to the HTTP address of a node, or give the member id",
            code=error.code,
        ) from None
    from quorate.groupview import names_of

    return {name: member_id for member_id, name in names_of(view["group"]["members"]).items()}


def _member_named(
    text: str, members: Sequence[MemberInfo], group_id: str, ids_by_name: Callable[[], dict[str, str]]
) -> MemberInfo:
    """The member with that member id, else the one with that instance id, else the one of that name."""
    for member in [
        *(member for member in members if member.member_id == text),
        *(member for member in members if member.instance_id == text),
    ]:
        return member
    if _NAME.fullmatch(text):
        named = ids_by_name().get(text)
        for member in members:
            if member.member_id == named:
                return member
    raise CommandError(
        f"group {group_id!r} has no member {text!r}, neither by name, nor by member id, nor by instance id",
        hint=f"`quorate groups describe {group_id}` lists its members",
        code=ExitCode.REFUSED,
    )


def _called(member: MemberInfo) -> str:
    name = f"instance {member.instance_id}, " if member.instance_id else ""
    return f"member {member.member_id} ({name}client {member.client_id or '-'})"
