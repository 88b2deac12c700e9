"""The diaries of `consumer.py`, and facts derived from them: owners, gaps, acknowledgements."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Span:
    """An interval in which `member` owned a partition, from `start_s` to `end_s` (monotonic)."""

    partition: int
    member: str
    start_s: float
    end_s: float


@dataclass(slots=True)
class Diary:
    """One member's events in chronological order."""

    member: str
    events: list[dict[str, Any]] = field(default_factory=list)

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] in kinds]

    @property
    def acked_s(self) -> list[float]:
        """Times of acknowledged commits."""
        return [event["at_s"] for event in self.of("acked")]

    def spans(self) -> list[Span]:
        """Intervals of ownership, from the end of `assigned` to the start of `revoked` or `lost`."""
        since: dict[int, float] = {}
        found = []
        for event in self.events:
            for partition in event.get("partitions", ()):
                if event["event"] == "assigned":
                    since[partition] = event["at_s"]
                else:
                    found.append(Span(partition, self.member, since.pop(partition), event["at_s"]))
        found += [Span(partition, self.member, start_s, math.inf) for partition, start_s in since.items()]
        return found

    def last_acknowledged(self) -> dict[int, int]:
        """The highest acknowledged offset of each partition."""
        highest: dict[int, int] = {}
        for event in self.of("acked"):
            for partition, offset in event["offsets"].items():
                highest[int(partition)] = max(offset, highest.get(int(partition), -1))
        return highest

    def longest_gap_s(self, from_s: float, to_s: float) -> float:
        """The longest time without an acknowledgement that overlaps [from_s, to_s]."""
        times = self.acked_s
        gaps = [after - before for before, after in pairwise(times) if after >= from_s and before <= to_s]
        return max(gaps, default=math.inf)


def read_diary(file: Path) -> Diary:
    """Read the complete lines of a diary; a killed member may have left half a line."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    lines = text[: text.rfind("\n") + 1].splitlines()
    return Diary(file.stem, [json.loads(line) for line in lines])


def double_owners(diaries: list[Diary]) -> list[tuple[Span, Span]]:
    """Every pair of overlapping spans of one partition by two members."""
    by_partition: dict[int, list[Span]] = {}
    for diary in diaries:
        for span in diary.spans():
            by_partition.setdefault(span.partition, []).append(span)
    found = []
    for spans in by_partition.values():
        spans.sort(key=lambda span: span.start_s)
        for position, one in enumerate(spans):
            found += [
                (one, other)
                for other in spans[position + 1 :]
                if other.member != one.member and other.start_s < one.end_s
            ]
    return found
