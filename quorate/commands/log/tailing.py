"""`--follow` for answers made from a group's facts: repeated whenever an entry about the group is committed.

The log is read once: new entries go to the builder that has processed all earlier ones, and the answer is
rebuilt from its rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from quorate.commands.log.common import plain
from quorate.output import put_json, say

if TYPE_CHECKING:
    from history.facts.rows import GroupRows
    from history.reading.node import NodeLog
    from history.telling.explain import Explanation

FOR_THE_MOMENT = ("from ", "not stable at the end", "nothing that matches")
"""Lines about the current state, which are only printed at the beginning."""


def facts_as_they_grow(log: NodeLog, group_id: str, shard: int | None) -> Iterator[GroupRows]:
    """Yield all facts of a group, first the existing ones, then again after each change, without end."""
    from history.facts.group import FactsBuilder, feed
    from history.reading.groups import unknown_group
    from history.reading.source import NothingToRead, Walk
    from quorate.following import followed
    from raftlog.storage.frames import Frame

    number = log.shard_of_group(group_id) if shard is None else shard
    walk = Walk(number, log.reader(number))
    builder = FactsBuilder(group_id, log.catalog(), number)
    feed(builder, walk)
    if not builder.is_known:
        raise NothingToRead(unknown_group(log, group_id, walk.basis))
    facts = replace(builder.finish(), basis=walk.basis)
    yield facts
    is_changed = False
    for found in followed(log, {number: facts.last_index + 1}):
        if found is not None:
            feed(builder, [found[1]])
            item = found[1]
            is_changed |= isinstance(item, Frame) and (
                group_id.encode() in item.body or item.record_count == 1
            )
        elif is_changed:
            yield replace(builder.finish(), basis=walk.basis)
            is_changed = False


def explanation_as_it_grows(
    log: NodeLog, group_id: str, shard: int | None, window: Mapping[str, Any], *, as_json: bool
) -> Iterator[str]:
    """Yield the existing output of `explain`, then what is new after each change, without end.

    As text these are the new lines, below the head of their paragraph; as JSON each step that is new or has
    changed, one object per line.
    """
    from history.telling.explain import explanation_of

    facts = facts_as_they_grow(log, group_id, shard)
    told = (explanation_of(log, one, **window) for one in facts)
    return _new_steps(told) if as_json else _new_lines(told, window["style"])


def timeline_as_it_grows(
    log: NodeLog, group_id: str, shard: int | None, window: Mapping[str, Any], *, as_json: bool
) -> Iterator[str]:
    """Yield existing rows, then each new one, and again when its epoch settles or is superseded.

    As JSON one object per line.
    """
    from history.telling.explain import explanation_of
    from history.telling.timeline import row_text
    from history.telling.timeline import timeline as rows_of

    known: dict[object, object] = {}
    for facts in facts_as_they_grow(log, group_id, shard):
        for row in rows_of(explanation_of(log, facts, **window)):
            key, stage = (row.epoch, row.index, row.timestamp_ms, row.why), (row.settled, row.overtaken)
            if known.get(key) != stage:
                known[key] = stage
                if as_json:
                    yield json.dumps(plain(row), ensure_ascii=False)
                else:
                    yield from row_text(row, window["style"])


def shows_now(*, as_json: bool) -> Callable[[str], None]:
    """A function that prints a line and flushes it, so that a reader on a pipe sees it at once."""
    if as_json:
        return lambda line: put_json(line, now=True)
    return lambda line: say(line, now=True)


def _new_steps(told: Iterator[Explanation]) -> Iterator[str]:
    known: dict[object, object] = {}
    for explanation in told:
        for step in explanation.steps:
            key, shown = (step.kind, step.index, step.timestamp_ms), plain(step)
            if known.get(key) != shown:
                known[key] = shown
                yield json.dumps(shown, ensure_ascii=False)


def _new_lines(told: Iterator[Explanation], style: Any) -> Iterator[str]:
    from history.telling.prose import explanation_text
    from quorate.following import NewLines

    new = NewLines()
    for number, explanation in enumerate(told):
        for is_text, lines in groupby(explanation_text(explanation, style), bool):
            block = list(lines) if is_text else []
            lasting = [line for line in block if not line.strip().startswith(FOR_THE_MOMENT)]
            fresh = new.of(block if number == 0 else lasting or block[:1])
            if fresh and fresh[0] == block[0]:
                yield ""
            yield from fresh
