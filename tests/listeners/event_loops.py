"""The two event loops that a node may run on: asyncio's own and uvloop, which differ in details."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine

import pytest

from cluster.host.host_asyncio import new_event_loop

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": new_event_loop}


def on_both_loops(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    """Run the test once on each loop."""

    @functools.wraps(test)
    def run(loop: str, **given: object) -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(test(**given))

    del run.__wrapped__  # type: ignore[attr-defined]
    own = inspect.Parameter("loop", inspect.Parameter.KEYWORD_ONLY)
    run.__signature__ = inspect.Signature([*inspect.signature(test).parameters.values(), own])  # type: ignore[attr-defined]
    return pytest.mark.parametrize("loop", LOOPS)(run)
