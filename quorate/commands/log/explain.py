"""`quorate log explain`: the cause of each epoch, in sentences."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from quorate.commands.log.common import Shard, Utc, plain, print_lines, read_log, style_of
from quorate.commands.log.subject import (
    ONE_GROUP,
    Follow,
    Live,
    LogData,
    LogGroup,
    Since,
    Until,
    moment,
    subject,
    window,
)
from quorate.commands.log.tailing import explanation_as_it_grows, shows_now
from quorate.commands.options import GroupNamed, Json, option
from quorate.errors import CommandError, ExitCode
from quorate.output import print_json


def explain(
    words: LogGroup = None,
    data: LogData = None,
    url: Live = None,
    named: GroupNamed = None,
    epoch: Annotated[int | None, option("--epoch", "N", "Only this epoch of the group.")] = None,
    member: Annotated[
        str | None,
        option(
            "--member",
            "MEMBER",
            "Only entries that concern this member: its member id, its short name (m3), instance id or "
            "client id.",
        ),
    ] = None,
    partition: Annotated[
        str | None,
        option("--partition", "TOPIC-N", "Only entries that concern this partition, such as orders-3."),
    ] = None,
    at: Annotated[
        str | None,
        option(
            "--at",
            "INDEX|TIME|SPAN",
            "Only the epochs around this moment, from the last stable one until the group was stable again.",
        ),
    ] = None,
    since: Since = None,
    until: Until = None,
    shard: Shard = None,
    follow: Follow = False,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """Explain each epoch of a group: its cause, what moved, which members waited for which, how long it took.

    Options narrow each other; if one names something that does not exist, the answer lists what does.
    --follow continues with new events as they are committed.

    Example: quorate log explain billing --at 03:12
    """
    from history.telling.explain import explain as read
    from history.telling.filters import Filters
    from history.telling.prose import explanation_text

    if follow and (until is not None or at is not None or epoch is not None):
        raise CommandError("--follow has no end: leave out --until, --at and --epoch", code=ExitCode.USAGE)
    log, (group,) = subject(words, data, url, ONE_GROUP, named)
    style = style_of(utc)
    (at_index, at_ms), notes = moment(log, at, utc=utc, group=group, shard=shard)
    filters = Filters(epoch=epoch, member=member, partition=partition, at_index=at_index, at_ms=at_ms)
    within = window(log, since, until, utc=utc, group=group, shard=shard, follow=follow)
    within = replace(within, notes=(*within.notes, *notes))
    asked = {"window": within, "filters": filters, "style": style}
    if follow:
        lines = explanation_as_it_grows(log, group, shard, asked, as_json=json)
        print_lines(log.path, lines, shows_now(as_json=json))
        return
    explanation = read_log(log.path, lambda: read(log, group, shard=shard, **asked), within.notes)
    if json:
        print_json(plain(explanation))
    else:
        print_lines(log.path, explanation_text(explanation, style))
