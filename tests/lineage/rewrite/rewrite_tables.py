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
    RewriteState,
    Table,
)

_NAMES_OF_THREAD = {RewriteState.PREPARING: "PrepReba"}


def sections() -> dict[str, str]:
    """Heading → rendered table and diagram."""
    parts = {
        "### The design's coordinator": _coordinator(DESIGN_COORDINATOR, {}),
        "### The design's consumer": _consumer(DESIGN_CONSUMER),
        "### The thread's coordinator": _coordinator(THREAD_COORDINATOR, _NAMES_OF_THREAD),
        "### The thread's consumer": _consumer(THREAD_CONSUMER),
        "### The thread's subroutines 20 to 40": _fetching(),
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
    for (runs, outcome), to in FETCHING.items():
        yield f"| {runs.value} {runs.name} | {outcome.value} | {to.value} {to.name} |"


def _diagram(arrows: Iterable[str]) -> Iterator[str]:
    yield from ("", "```mermaid", "stateDiagram-v2", *(f"    {arrow}" for arrow in arrows), "```")


if __name__ == "__main__":
    print("\n".join(f"{heading}\n\n{text}" for heading, text in sections().items()), end="")
