"""A request of one side's client, and the meaning of its reply for the client model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from tests.differential.script import Step
from tests.differential.side import MemberModel
from wire.apis import ApiKey

ABOVE: Final = 1_000
"""More than any epoch in a script, even for a member that lags some epochs behind."""


@dataclass(slots=True)
class Asked:
    """A request, and the meaning of its reply for the client model."""

    api: ApiKey
    version: int
    body: Any
    """The message; its class says which fields it has."""
    member: MemberModel | None = None
    is_positional: bool = False
    """The request names different partitions on each side (the k-th that the member holds)."""
    facts: dict[str, object] = field(default_factory=dict)
    has_unknown_field: bool = False
    """The request has a tagged field that no release knows (a flexible request's last byte counts them)."""


def topic_name(name: str, group_id: str) -> str:
    """Return the topic's name on the servers: a script's own topics carry the group's name."""
    return f"{name}-{group_id}" if name.startswith("own") else name


def topic_names(names: str, group_id: str) -> list[str]:
    return [topic_name(name, group_id) for name in names.split(",") if name]


def epoch_of(step: Step, member: MemberModel) -> int | None:
    """Return the epoch that a step refers to; None if the member never had it."""
    which = step.get("epoch", "same")
    if which == "above":
        return member.epoch + ABOVE
    if which == "before":
        return member.before or None
    return member.epoch
