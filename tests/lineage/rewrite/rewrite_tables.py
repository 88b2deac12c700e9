"""Renders seed 000's tables for docs/generations.md: `python -m tests.lineage.rewrite.rewrite_tables`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lineage.rewrite.machines import (
    DESIGN_CONSUMER,
    DESIGN_COORDINATOR,
    FETCHING,
    THREAD_CONSUMER,
    THREAD_COORDINATOR,
    ConsumerTable,
    RewriteConsumerEvent,
    RewriteConsumerState,
    RewriteState,
    Table,
)

_OF_COMMIT = (
    RewriteConsumerEvent.COMMITTED,
    RewriteConsumerEvent.LOST,
    RewriteConsumerEvent.UNKNOWN,
    RewriteConsumerEvent.COMMIT_FAILED,
)
_NAMES_OF_THREAD = {RewriteState.PREPARING: "PrepReba"}


def sections() -> dict[str, str]:
    """Heading → rendered table and diagram."""
    parts = {
        "### The design's coordinator": _coordinator(DESIGN_COORDINATOR, {}),
        "### The design's consumer": _consumer(DESIGN_CONSUMER),
        "### The thread's coordinator": _coordinator(THREAD_COORDINATOR, _NAMES_OF_THREAD),
        "### The thread's consumer": _consumer(THREAD_CONSUMER),
        "### The thread's subroutines 10 to 40": _fetching(),
    }
    return {heading: "\n".join(lines) + "\n" for heading, lines in parts.items()}


def _coordinator(table: Table, names: dict[RewriteState, str]) -> Iterator[str]:
    yield from ("| State | Event | Next state |", "|---|---|---|")
    rows = [(names.get(a, a.value), event, names.get(b, b.value)) for (a, event), b in table.items()]
    yield from (f"| {a} | {event.value} | {b} |" for a, event, b in rows)
    yield from _diagram(["[*] --> Down", *(f"{a} --> {b} : {event.name}" for a, event, b in rows)])


def _consumer(table: ConsumerTable) -> Iterator[str]:
    yield from ("| State | Event | Next state | Actions |", "|---|---|---|---|")
    for (state, event), (to, actions) in table.items():
        does = "; ".join(action.value for action in actions) or "–"
        yield f"| {state.value} | {event.value} | {to.value} | {does} |"
    first = next(iter(table))[0].value
    steps = (f"{a.value} --> {b.value} : {event.name}" for (a, event), (b, _) in table.items())
    yield from _diagram([f"[*] --> {first}", *steps])


def _fetching() -> Iterator[str]:
    yield from ("| Subroutine | Its request is | Next |", "|---|---|---|")
    rows = [
        ("10_COMMIT", event.name, event.value, THREAD_CONSUMER[state, event][0].value)
        for state in (RewriteConsumerState.IN_GROUP, RewriteConsumerState.JOINING)
        for event in _OF_COMMIT
    ]
    rows = [*dict.fromkeys((a, name, says, _after_commit(name, to)) for a, name, says, to in rows)]
    rows += [
        (f"{runs.value}_{runs.name}", outcome.name, outcome.value, f"{to.value}_{to.name}")
        for (runs, outcome), to in FETCHING.items()
    ]
    for runs, _, says, to in rows:
        yield f"| {runs.replace('_', ' ', 1)} | {says} | {to.replace('_', ' ', 1)} |"
    yield from _diagram(f"{_id(runs)} --> {_id(to)} : {name}" for runs, name, _, to in rows)


def _id(name: str) -> str:
    """Mermaid's names of states do not begin with a number."""
    number, _, rest = name.partition("_")
    return f"{rest}_{number}" if rest else name


def _after_commit(name: str, to: str) -> str:
    """The fourth outcome commits again; after the others the consumer is in a state."""
    return "10_COMMIT" if name == RewriteConsumerEvent.COMMIT_FAILED.name else to


def _diagram(arrows: Iterable[str]) -> Iterator[str]:
    yield from ("", "```mermaid", "stateDiagram-v2", *(f"    {arrow}" for arrow in arrows), "```")


if __name__ == "__main__":
    print("\n".join(f"{heading}\n\n{text}" for heading, text in sections().items()), end="")
