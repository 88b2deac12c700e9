"""The `settle` step: all members heartbeat until nothing changes any more, each side at its own pace."""

from __future__ import annotations

from typing import Any, Final

from tests.differential.asking import ask_for
from tests.differential.hearing import hear
from tests.differential.script import Step
from tests.differential.side import Side

ROUNDS_MAX: Final = 30
"""A change takes three or four rounds."""


async def settle(side: Side, group_id: str) -> Any:
    """Return the description of the settled group. Raises TimeoutError if it does not settle."""
    for _ in range(ROUNDS_MAX):
        has_moved = [await _moves(side, who, group_id) for who in sorted(side.members)]
        asked = ask_for(Step("describe"), side, group_id)
        assert asked is not None
        answer = await side.ask(asked.api, asked.version, asked.body)
        if not any(has_moved) and answer.groups[0].group_state in ("Stable", "Empty"):
            return answer
    raise TimeoutError(f"{side.name} has not settled in {ROUNDS_MAX} rounds: {answer}")


async def _moves(side: Side, who: str, group_id: str) -> bool:
    """Send one heartbeat and return whether it brought a new epoch or assignment."""
    step = Step("beat", who, {"owned": "told"})
    asked = ask_for(step, side, group_id)
    assert asked is not None
    assert asked.member is not None
    before = asked.member.epoch
    answer = await side.ask(asked.api, asked.version, asked.body)
    assert not answer.error_code, f"{side.name} answered a plain heartbeat with {answer.error_code}"
    hear(step, side, asked, answer)
    return before != asked.member.epoch or answer.assignment is not None
