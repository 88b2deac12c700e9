"""`quorate log replay`: the state at an index or a time."""

from __future__ import annotations

from quorate.commands.log.common import At, Shard, Utc, plain, print_lines, print_notes, read_log, style_of
from quorate.commands.log.subject import (
    Live,
    LogData,
    LogMaybeGroup,
    log_and_group,
    moment,
)
from quorate.commands.options import GroupNamed, Json
from quorate.output import print_json, say


def replay(
    words: LogMaybeGroup = None,
    data: LogData = None,
    url: Live = None,
    at: At = None,
    named: GroupNamed = None,
    shard: Shard = None,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """Rebuild the state at an index or a time; without --at, at the end of the log.

    An index belongs to one shard, so it needs a group or --shard; a time does not.

    Example: quorate log replay quorate-data --group billing --at 2026-03-01T03:12
    """
    from history.state.replay import replay as read
    from history.state.replay import replay_all, state_text

    log, group = log_and_group(words, data, url, named)
    (index, time_ms), notes = moment(log, at, utc=utc, group=group, shard=shard)
    if group is None and shard is None:
        states = read_log(log.path, lambda: replay_all(log, at_ms=time_ms), notes)
    else:
        one = read_log(
            log.path, lambda: read(log, shard=shard, group=group, at_index=index, at_ms=time_ms), notes
        )
        states = (one,)
    if json:
        print_json({"shards": [plain(state) for state in states], "notes": notes})
        return
    for position, state in enumerate(states):
        if position:
            say()
        print_lines(log.path, state_text(state, style_of(utc)))
    print_notes(notes)
