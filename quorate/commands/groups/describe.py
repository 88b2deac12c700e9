"""`quorate groups describe`: a group, once or repeatedly.

What Kafka's description lacks (which member waits for which, how long they have, refused requests) comes over
HTTP from the leader; without it the plain description is shown, with a line that says what is missing. Lag is
shown if the cluster keeps messages itself, or `--end-offsets-from` names the one that has them.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from history.render import LOCAL
from quorate.addresses import place_of_cluster
from quorate.commands.options import (
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    EndOffsetsFrom,
    Group,
    GroupNamed,
    Json,
    Timeout,
    Url,
    connect,
    flag,
    kafka_offsets,
    one_group,
    option,
)
from quorate.errors import CommandError, ExitCode
from quorate.output import Screen, print_json, put, terminal_width

if TYPE_CHECKING:
    from quorate.client import Client
    from quorate.endoffsets import KafkaOffsets, Partition
    from quorate.groupclient import GroupDescription
    from quorate.live import LiveView


def describe(
    argument: Group = None,
    named: GroupNamed = None,
    watch: Annotated[bool, flag("--watch -w", "Refresh the output until Ctrl-C.")] = False,
    interval_s: Annotated[
        float, option("--interval", "SECONDS", "Seconds between refreshes.", min=0.1)
    ] = 1.0,
    end_offsets_from: EndOffsetsFrom = "",
    bootstrap: Bootstrap = None,
    url: Url = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Show a group: its members, what each owns, should own and waits for, its offsets, and refused requests.

    Example: quorate groups describe billing --watch
    """
    from quorate.live import LiveView
    from wire.apis import ApiKey

    group = one_group(argument, named)
    place = place_of_cluster(bootstrap, url)
    with connect(place, timeout_s) as client:
        cluster_id = client.cluster_id()
        own = client.bootstrap if client.serves(ApiKey.DELETE_RECORDS) else ""
        source = kafka_offsets(end_offsets_from or own, timeout_s)
        if source is not None:
            source.check_has_records(cluster_id)
        take = partial(_look, client, LiveView(place, cluster_id, timeout_s), source, group)
        if watch:
            _watch(take, interval_s, json)
        sight = take()
        if json:
            print_json(sight.document())
        else:
            for line in sight.lines(terminal_width(sys.stdout)):
                put(line)


@dataclass(frozen=True, slots=True)
class _Sight:
    """The result of one look: Kafka's description, the leader's own if reached, and the end offsets."""

    plain: GroupDescription
    live: Any
    live_missing: str | None
    ends: dict[Partition, int] | None
    ends_missing: str | None
    lost_before: dict[Partition, int]

    def document(self) -> dict[str, Any]:
        ends: dict[str, dict[int, int]] | None = None
        if self.ends is not None:
            ends = {}
            for (topic, number), end in self.ends.items():
                ends.setdefault(topic, {})[number] = end
        return {
            **dataclasses.asdict(self.plain),
            "live": self.live,
            "live_missing": self.live_missing,
            "end_offsets": ends,
            "end_offsets_missing": self.ends_missing,
        }

    def lines(self, width: int | None, lines_max: int | None = None) -> list[str]:
        from history.columns import wrapped
        from history.protocols import OLD
        from quorate.groupview import lines, plain_view, with_numbers

        is_consumer = self.plain.group_type == "consumer"
        # The leader's view of a classic group has only the members of the newest generation.
        is_told = bool(self.live) and (is_consumer or self.live["group"]["type"] in OLD)
        at_ms = self.live["at_ms"] if is_told else None
        view = plain_view(self.plain)
        if is_told:
            view = {**self.live["group"], "coordinator": self.plain.coordinator}
        if self.live and not is_told:
            view = with_numbers(view, self.live["group"])
        text = lines(
            view,
            self.plain.offsets,
            at_ms=at_ms,
            ends=self.ends,
            lost_before=self.lost_before,
            width=width,
            lines_max=lines_max,
        )
        if self.live_missing and self.plain.members:
            more = ", waiting partitions and refused requests" if is_consumer else ""
            missing = f"members' numbers{more} are unknown: {self.live_missing}"
            text += ["", *wrapped(missing, width)]
        if self.ends_missing:
            text += ["", *wrapped(f"the group's lag is unknown: {self.ends_missing}", width)]
        return text


def _look(client: Client, live: LiveView, source: KafkaOffsets | None, group_id: str) -> _Sight:
    """Take one look; raises `CommandError` if not even the plain description is available."""
    from quorate.groupview import owned_partitions, plain_view

    plain = client.describe_group(group_id)
    shown, live_missing, ends, ends_missing = None, None, None, None
    lost: dict[Partition, int] = {}
    try:
        shown = live.group(group_id)
    except CommandError as error:
        live_missing = f"{error.message}; set --url to the HTTP address of a node"
    if source is not None:
        committed = [(topic, number) for topic, by in plain.offsets.items() for number in by]
        try:
            ends = source.latest([*committed, *owned_partitions(plain_view(plain))])
            lost = source.lost_before(committed)
        except CommandError as error:
            ends_missing = str(error)
    return _Sight(plain, shown, live_missing, ends, ends_missing, lost)


def _watch(take: Callable[[], _Sight], interval_s: float, json: bool) -> NoReturn:
    """Repeat until Ctrl-C. Failures after the first look are shown: a leader may be away for a moment."""
    screen, sight = Screen(sys.stdout), None
    while True:
        begun_s = time.monotonic()
        try:
            sight = take()
            document, lines = sight.document(), sight.lines(terminal_width(sys.stdout), screen.room)
        except CommandError as error:
            if sight is None or error.code == ExitCode.USAGE:
                raise
            document, lines = error.as_dict(), [str(error), "", "trying again …"]
        if json:
            print_json(document)
        else:
            screen.show(_title(interval_s), lines)
        pause(max(0.0, begun_s + interval_s - time.monotonic()))


def pause(seconds: float) -> None:
    """Wait between two looks."""
    time.sleep(seconds)


def _title(interval_s: float) -> str:
    return f"{LOCAL.full(int(time.time() * 1000))}, every {interval_s:g} s until Ctrl-C"
