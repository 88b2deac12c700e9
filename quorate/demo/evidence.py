"""Reads the files that consumers wrote about themselves: the evidence that does not come from the server.

The format is that of `consumer.py`. A killed consumer may have left half a line at the end of its file, which
is ignored; any other line that is not JSON is an error.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """An acknowledged commit: when it was sent, when it was acknowledged, and its offsets by partition."""

    sent_ms: int
    at_ms: int
    offsets: dict[int, int]


@dataclass(frozen=True, slots=True)
class AssignmentCallback:
    """A callback of the client: `kind` is assigned, revoked or lost."""

    at_ms: int
    kind: str
    partitions: frozenset[int]


@dataclass(slots=True)
class ConsumerEvidence:
    """The contents of one consumer's file."""

    name: str
    acknowledged: list[Acknowledgement] = field(default_factory=list)
    changes: list[AssignmentCallback] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    sent_ms: int = -1
    """Wall-clock time of the newest commit request."""

    @property
    def owned(self) -> frozenset[int]:
        """The partitions that the consumer owns according to its callbacks."""
        owned: frozenset[int] = frozenset()
        for change in self.changes:
            owned = owned | change.partitions if change.kind == "assigned" else owned - change.partitions
        return owned

    @property
    def num_acknowledged(self) -> int:
        """Acknowledged offsets, counted per partition."""
        return sum(len(commit.offsets) for commit in self.acknowledged)

    def commits_since(self, since_ms: int) -> bool:
        """Whether a commit sent after `since_ms` was acknowledged."""
        return bool(self.acknowledged) and self.acknowledged[-1].sent_ms > since_ms

    def longest_gap_ms(self, since_ms: int) -> int:
        """The longest time between two acknowledgements, the later one after `since_ms`; 0 if none."""
        times = [commit.at_ms for commit in self.acknowledged]
        return max((later - earlier for earlier, later in pairwise(times) if later > since_ms), default=0)


class EvidenceFile:
    """A consumer's file that is still being written; `read` continues where it ended."""

    def __init__(self, name: str, path: Path) -> None:
        self._path = path
        self._position = 0
        self._evidence = ConsumerEvidence(name)

    def read(self) -> ConsumerEvidence:
        """The contents so far; an absent file is a consumer that has not started yet."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._position += len(whole)
            for line in whole.splitlines():
                _add(self._evidence, json.loads(line))
        return self._evidence


def _add(evidence: ConsumerEvidence, entry: dict[str, object]) -> None:
    match entry:
        case {"event": "sent", "at_ms": int(at_ms)}:
            evidence.sent_ms = at_ms
        case {"event": "acknowledged", "at_ms": int(at_ms), "offsets": dict(offsets)}:
            by_partition = {int(partition): offset for partition, offset in offsets.items()}
            evidence.acknowledged.append(Acknowledgement(evidence.sent_ms, at_ms, by_partition))
        case {"event": "failed", "error": str(error)}:
            evidence.failures.append(error)
        case {
            "event": "assigned" | "revoked" | "lost" as kind,
            "at_ms": int(at_ms),
            "partitions": list(numbers),
        }:
            evidence.changes.append(AssignmentCallback(at_ms, str(kind), frozenset(numbers)))
