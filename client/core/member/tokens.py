"""The fencing tokens of a member that asks for them: as the coordinator gave them, and as they were taken.

A lease has one token all its life. A partition whose token has changed without a revocation, because the
answer that took it away was lost, is taken from the application and given back with the new one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from client.core.types import TopicIdPartition

FALLEN: Final = (
    "The coordinator gave the token {token} for partition {partition} of a topic, and this member has had "
    "{had} for it: the cluster's log was replaced by an older copy. Stop all holders before they write "
    "again, and reset the tokens that their stores keep"
)
"""The sentence for a token that does not rise."""


class FencingTokens:
    """The tokens of one member; there are none if it does not ask for them."""

    def __init__(self) -> None:
        self._given: Mapping[TopicIdPartition, int] = {}
        """The tokens of the newest assignment. A partition that is to be revoked at once has none."""
        self._taken: dict[TopicIdPartition, int] = {}
        """The tokens of the partitions that the application has, and the last ones of those it had."""

    def answered(
        self, tokens: Mapping[TopicIdPartition, int], held: Collection[TopicIdPartition]
    ) -> str | None:
        """Note the tokens of an assignment. Returns what is wrong if one has not risen."""
        self._given = tokens
        for part, token in tokens.items():
            had = self._taken.get(part, -1)
            if token < had or (token == had and part not in held):
                return FALLEN.format(token=token, partition=part.partition, had=had)
        return None

    def has(self, part: TopicIdPartition) -> bool:
        """Whether the newest assignment has a token for a partition."""
        return part in self._given

    def is_outdated(self, part: TopicIdPartition) -> bool:
        """Whether a partition that the application has was given again, with another token."""
        return part in self._given and self._given[part] != self._taken.get(part)

    def take(self, parts: Collection[TopicIdPartition]) -> dict[TopicIdPartition, int]:
        """Return the tokens with which the application gets these partitions."""
        tokens = {part: self._given[part] for part in parts if part in self._given}
        self._taken.update(tokens)
        return tokens
