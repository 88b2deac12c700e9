"""`quorate groups config`: what a group is configured to, and where each value comes from."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from quorate.commands.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    Json,
    Timeout,
    connect,
)
from quorate.errors import CommandError, ExitCode
from quorate.output import print_json, print_table

PREFIX = "consumer."
"""What the name of every config of a group begins with; it may be left out."""

Group = Annotated[
    str, typer.Argument(metavar="GROUP", help="The group's id; it need not exist yet.", show_default=False)
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Set a config, such as session.timeout.ms=10000."),
]
Unset = Annotated[
    list[str] | None,
    typer.Option("--unset", metavar="NAME", help="Take a config back: the nodes' settings hold again."),
]


def config(
    group: Group,
    set_: Set = None,
    unset: Unset = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Show or change what a group is configured to; changes hold from each member's next heartbeat.

    Example: quorate groups config billing --set session.timeout.ms=10000 --unset heartbeat.interval.ms
    """
    changes = changes_of(set_ or [], unset or [])
    with connect(bootstrap, timeout_s) as client:
        if changes:
            client.configure_group(group, changes)
        configs = client.group_configs(group)
    if json:
        print_json({"group_id": group, "configs": [dataclasses.asdict(row) for row in configs]})
        return
    rows = [(row.name, row.value, "the group's own" if row.is_own else "of the nodes") for row in configs]
    print_table(("CONFIG", "VALUE", "WHOSE"), rows, empty="no configs")


def changes_of(sets: list[str], unsets: list[str]) -> dict[str, str | None]:
    """Full names to values, None for what is taken back; raises `CommandError` (usage)."""
    changes: dict[str, str | None] = {}
    for text in [*sets, *unsets]:
        name, equals, value = text.partition("=")
        is_set = text in sets
        if not name or is_set != bool(equals):
            what = "NAME=VALUE" if is_set else "NAME"
            hint = (
                f"for example {'--set session.timeout.ms=10000' if is_set else '--unset session.timeout.ms'}"
            )
            raise CommandError(f"{text!r} is not {what}", hint=hint, code=ExitCode.USAGE)
        full = name if name.startswith(PREFIX) else PREFIX + name
        if full in changes:
            raise CommandError(
                f"{full} is given twice", hint="say once what it shall be", code=ExitCode.USAGE
            )
        changes[full] = value if is_set else None
    return changes
