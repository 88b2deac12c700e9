"""A request of one side's client, with what its reply will mean to the client model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tests.differential.script import Step
from tests.differential.side import MemberModel
from wire.apis import ApiKey
from wire.schema import Message

ABOVE: Final = 1_000
"""More than any epoch of a script, also of a member that is some epochs behind."""


@dataclass(slots=True)
class Asked:
    """A request, and what its reply means to the client model."""

    api: ApiKey
    version: int
    body: Message
    member: MemberModel | None = None
    is_positional: bool = False
    """Names other partitions on each side (the k-th that the member holds)."""
    facts: dict[str, object] = field(default_factory=dict)
    has_unknown_field: bool = False
    """Bears a tagged field that no release knows (the last byte of a flexible request counts them)."""


def topic_name(name: str, group_id: str) -> str:
    """Topics of the script alone bear the group's name on the servers."""
    return f"{name}-{group_id}" if name.startswith("own") else name


def topic_names(names: str, group_id: str) -> list[str]:
    return [topic_name(name, group_id) for name in names.split(",") if name]


def epoch_of(step: Step, member: MemberModel) -> int | None:
    """The epoch that a step speaks of; None when the member never had it."""
    which = step.get("epoch", "same")
    if which == "above":
        return member.epoch + ABOVE
    if which == "before":
        return member.before or None
    return member.epoch
