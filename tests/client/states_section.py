"""The member's states in docs/client.md: `python -m tests.client.states_section` writes them there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from client.core.member.drawings import FIRST_DRAWING, NAMES, SECOND_DRAWING, Arrow
from client.core.member.states import (
    COORDINATOR_MOVED,
    FATAL_ERRORS,
    FENCING,
    TRANSITIONS,
    UNKNOWN_ERROR,
    MemberEvent,
    MemberState,
)
from wire.errors import ErrorCode

from .settings_section import PAGE

BEGIN = "<!-- The member's states are written by python -m tests.client.states_section. -->\n"
END = "<!-- End of the member's states. -->\n"


def render() -> str:
    """Return the section as Markdown, with a newline at its end."""
    parts = (_states(), _diagram(), _transitions(), _drawings(), _errors())
    return "".join(f"{line}\n" for part in parts for line in part)


def _states() -> Iterator[str]:
    yield from _table(
        ("State", "Meaning", "`GroupState`", "Threading design", "List and first drawing", "Second drawing"),
        (
            (f"**{state.name}**", state.value, names.group.name, names.threading, names.listed, names.drawn)
            for state, names in NAMES.items()
        ),
    )


def _diagram() -> Iterator[str]:
    yield from ("", "```mermaid", "stateDiagram-v2", "    [*] --> UNSUBSCRIBED")
    for (state, event), to in TRANSITIONS.items():
        if to is not state:
            yield f"    {state.name} --> {to.name} : {event.name}"
    yield from ("    FATAL --> [*]", "```")


def _transitions() -> Iterator[str]:
    yield ""
    events = {
        event: [(state, to) for (state, at), to in TRANSITIONS.items() if at is event]
        for event in MemberEvent
    }
    yield from _table(
        ("Cause", "Meaning", "Transitions"),
        (
            (event.name, event.value, "; ".join(f"{state.name} → {to.name}" for state, to in steps))
            for event, steps in events.items()
        ),
    )


def _drawings() -> Iterator[str]:
    for name, drawing in (("first", FIRST_DRAWING), ("second", SECOND_DRAWING)):
        yield from ("", f"The {name} drawing, arrow by arrow:", "")
        yield from _table(("Arrow", "Taken by", "Here"), (_arrow(arrow) for arrow in drawing))


def _arrow(arrow: Arrow) -> tuple[str, str, str]:
    label = f" : {arrow.label}" if arrow.label else ""
    starts = ", ".join(state.name for state in MemberState if state in arrow.states)
    here = f"{starts} → {arrow.ends_in.name}" if arrow.path else arrow.ends_in.name
    path = ", ".join(event.name for event in arrow.path)
    if arrow.reason:
        here += f". **Not as drawn:** {arrow.reason}"
    return f"`{arrow.start}` → `{arrow.end}`{label}", path, here


def _errors() -> Iterator[str]:
    yield from ("", "Errors in answers to heartbeats. Those that are fatal are raised by every `poll()`:", "")
    fencing = ", ".join(code.name for code in FENCING)
    moved = ", ".join(code.name for code in COORDINATOR_MOVED)
    yield from _table(
        ("Error", "What the member does"),
        [
            (f"{fencing}; GROUP_ID_NOT_FOUND after the join", "FENCED; of a join: tries again"),
            (moved, "looks for the coordinator and tries again, the first time at once"),
            ("others that Kafka calls retriable", "tries again"),
            ("TOPIC_AUTHORIZATION_FAILED", "the next `poll()` raises it; tries again"),
            (
                "UNRELEASED_INSTANCE_ID after a join or a leave without an answer, or after being fenced",
                "tries again for a minute: its own registration may be in the way",
            ),
            *((ErrorCode(code).name, f"FATAL: {sentence}.") for code, sentence in FATAL_ERRORS.items()),
            ("any other", f"FATAL: {UNKNOWN_ERROR}."),
        ],
    )


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def replaced(page: str) -> str:
    """Return the page with the states as they are now."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}{render()}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text()))
