"""Groups of the older protocols that several modules here read: random lives, stories, and their records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from history.protocols import PUSH, REWRITE
from lineage.push.decisions import Failover
from records import (
    Cause,
    RecordType,
    decode_record,
)
from tests.support.lineage_logs import (
    PushTape,
    Tape,
    push_story,
    rewrite_life,
    rewrite_story,
)
from tests.support.push_world import play

LIVES: dict[str, Callable[[], Tape]] = {
    **{f"push-wait-{seed}": lambda seed=seed: play(seed, Failover.WAIT, PushTape) for seed in (1, 5)},
    **{f"push-log-{seed}": lambda seed=seed: play(seed, Failover.LOG, PushTape) for seed in (2, 4)},
    **{f"design-{seed}": lambda seed=seed: rewrite_life("design", seed) for seed in (1, 2)},
    **{f"thread-{seed}": lambda seed=seed: rewrite_life("thread", seed) for seed in (1, 2)},
}
STORIES: dict[str, Callable[[], Tape]] = {PUSH: push_story, REWRITE: rewrite_story}


@cache
def life(name: str) -> Tape:
    return LIVES[name]()


@cache
def story(protocol: str) -> Tape:
    return STORIES[protocol]()


every_life = pytest.mark.parametrize("name", LIVES)
every_story = pytest.mark.parametrize("protocol", STORIES)


# The reading that the facts are compared with.

Read = tuple[int, Cause, Any]
"""Index, cause, and the group's record as decoded; None: it was deleted."""


def read(tape: Tape) -> Iterator[Read]:
    for index, (_, cause, raws) in enumerate(tape.told, 1):
        for raw in raws:
            if raw.type in (RecordType.PUSH_GROUP, RecordType.REWRITE_GROUP):
                assert cause is not None
                yield index, cause, decode_record(raw).value
