"""`quorate groups …`: the live view of consumer groups; `quorate log explain` has their history."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from quorate.commands.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    Json,
    Timeout,
    connect,
    new_app,
)
from quorate.output import assignment_text, print_json, print_table

if TYPE_CHECKING:
    from quorate.client import GroupDescription

app = new_app("List, describe and delete consumer groups.")

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.", show_default=False)]
Groups = Annotated[
    list[str], typer.Argument(metavar="GROUP", help="Ids of groups without members.", show_default=False)
]


@app.command("list")
def list_groups(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout_s: Timeout = DEFAULT_TIMEOUT_S, json: Json = False
) -> None:
    """List every group with its state.

    Example: quorate groups list
    """
    with connect(bootstrap, timeout_s) as client:
        groups = client.groups()
    if json:
        print_json({"groups": [dataclasses.asdict(group) for group in groups]})
    else:
        rows = [(group.group_id, group.state, group.group_type) for group in groups]
        print_table(("GROUP", "STATE", "TYPE"), rows, empty="no groups")


@app.command("describe")
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


@app.command("delete")
def delete(
    groups: Groups,
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
                print(f"deleted group {group_id}")


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
