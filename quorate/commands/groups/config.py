"""`quorate groups config`: the configs in effect for a group, and the origin of each value.

Every node knows the configs that are set. The values that members get are only known to the leader, which may
choose their heartbeat interval by its load; it is asked over HTTP. If that fails, the set values are shown,
with a line that says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from quorate.addresses import ClusterPlace, place_of_cluster
from quorate.commands.options import (
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    Group,
    GroupNamed,
    Json,
    Timeout,
    Url,
    connect,
    one_group,
    option,
)
from quorate.errors import CommandError, ExitCode
from quorate.output import print_json, print_table, say

if TYPE_CHECKING:
    from quorate.client import Client, ConfigInfo

PREFIX = "consumer."
"""The prefix of most configs' names; it may be omitted on the command line."""

PUSH_PREFIX = "push."
"""The prefix of the configs of groups of the push protocol."""

WHOSE = {"group": "the group's own", "adaptive": "chosen by its node's load", "broker": "the nodes' setting"}

Set = Annotated[
    list[str] | None, option("--set", "NAME=VALUE", "Set a config, such as session.timeout.ms=10000.")
]


def config(
    argument: Group = None,
    named: GroupNamed = None,
    set_: Set = None,
    unset: Annotated[
        list[str] | None,
        option("--unset", "NAME", "Delete a config, so that the nodes' setting applies again."),
    ] = None,
    bootstrap: Bootstrap = None,
    url: Url = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Show a group's configs and their origins; changes apply from each member's next heartbeat.

    The group need not exist yet.

    Example: quorate groups config billing --set session.timeout.ms=10000 --unset heartbeat.interval.ms
    """
    group = one_group(argument, named)
    changes = changes_of(set_ or [], unset or [])
    place = place_of_cluster(bootstrap, url)
    with connect(place, timeout_s) as client:
        if changes:
            client.configure_group(group, changes)
        rows, missing = _rows(client, place, timeout_s, group)
    if json:
        print_json({"group_id": group, "configs": rows, "live_missing": missing})
        return
    table = [(row["name"], row["value"], _bounds(row), _whose(row)) for row in rows]
    print_table(("CONFIG", "VALUE", "BOUNDS", "WHOSE"), table, empty="no configs")
    if missing:
        say(f"the intervals in force are unknown, only configs that were set are shown: {missing}")


def _rows(
    client: Client, place: ClusterPlace, timeout_s: float, group: str
) -> tuple[list[dict[str, Any]], str | None]:
    """The configs as the leader knows them, else as every node does, with the reason."""
    from quorate.live import LiveView

    known = client.group_configs(group)
    push = [_row(row, row.value) for row in known if row.name.startswith(PUSH_PREFIX)]
    try:
        answer = LiveView(place, client.cluster_id(), timeout_s).group_configs(group)
        return sorted(answer["configs"], key=lambda row: str(row["name"])) + push, None
    except CommandError as error:
        missing = f"{error.message}; set --url to the HTTP address of a node"
    rows = [_row(row, int(row.value)) for row in known if not row.name.startswith(PUSH_PREFIX)]
    return rows + push, missing


def _row(row: ConfigInfo, value: int | str) -> dict[str, Any]:
    origin = "group" if row.is_own else "broker"
    return {"name": row.name, "value": value, "origin": origin, "set_to": value, "low": None, "high": None}


def _bounds(row: dict[str, Any]) -> str:
    return f"{row['low']} to {row['high']}" if row["low"] is not None else "-"


def _whose(row: dict[str, Any]) -> str:
    """The value's origin, followed by the value that was set if bounds or the session timeout override it."""
    words = WHOSE.get(row["origin"], row["origin"])
    is_bounded = row["set_to"] is not None and row["set_to"] != row["value"]
    return f"{words}, set to {row['set_to']}" if is_bounded else words


def changes_of(sets: list[str], unsets: list[str]) -> dict[str, str | None]:
    """Full names to values, None for unset ones; raises `CommandError` (usage)."""
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
        full = name if name.startswith((PREFIX, PUSH_PREFIX)) else PREFIX + name
        if full in changes:
            raise CommandError(f"{full} is given twice", hint="give it once", code=ExitCode.USAGE)
        changes[full] = value if is_set else None
    return changes
