"""The plan of an offset reset: computed here, shown, and only then carried out.

Pure functions: current offsets, the wanted ones, and the partitions' ends are given. A plan never sets an
offset below 0, nor outside a partition's ends where these are known; it notes when it had to adjust one.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from quorate.errors import CommandError, ExitCode

OFFSET_MAX = (1 << 63) - 1
FILE_FIELDS = ["topic", "partition", "offset"]
FILE_BYTES_MAX = 64 * 1024 * 1024
"""Limit on a CSV file: a million partitions with long names."""

Partition = tuple[str, int]
Ends = Mapping[Partition, tuple[int, int]]
"""Partitions' ends: offset of the first record, offset after the last."""
Wish = Callable[[Partition, int | None], int | None]
"""A partition's wanted offset, given its current one; None: unknown, so that it stays."""


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """One partition: its committed offset now (None: there is none), and the new one (None: unchanged)."""

    topic: str
    partition: int
    now: int | None
    new: int | None
    note: str = ""

    @property
    def is_change(self) -> bool:
        return self.new is not None and self.new != self.now


def plan(
    partitions: Iterable[Partition],
    committed: Mapping[str, Mapping[int, int]],
    wish: Wish,
    ends: Ends,
    why_not: str = "has no committed offset",
) -> list[OffsetChange]:
    """The steps, sorted by topic and partition; `why_not` is the note for those without a wanted offset."""
    steps = []
    for topic, number in sorted(set(partitions)):
        now = committed.get(topic, {}).get(number)
        wanted = wish((topic, number), now)
        if wanted is None:
            steps.append(OffsetChange(topic, number, now, None, why_not))
        else:
            new, note = _within(wanted, ends.get((topic, number)))
            steps.append(OffsetChange(topic, number, now, new, note))
    return steps


def _within(wanted: int, ends: tuple[int, int] | None) -> tuple[int, str]:
    first, after_last = ends if ends is not None else (0, OFFSET_MAX)
    if wanted < first:
        return first, f"{wanted} is before the beginning"
    if wanted > after_last:
        return after_last, f"{wanted} is after the end"
    return wanted, ""


def to_csv(steps: Iterable[OffsetChange]) -> str:
    """topic,partition,offset: a line for each partition that has an offset after the plan."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for step in steps:
        offset = step.new if step.new is not None else step.now
        if offset is not None:
            writer.writerow([step.topic, step.partition, offset])
    return text.getvalue()


def from_csv(text: str, name: str) -> dict[Partition, int]:
    """Parse a file from `to_csv`, or written by hand; raises `CommandError` (usage) naming the line."""
    found: dict[Partition, int] = {}
    for number, row in _rows(text, name):
        if row == FILE_FIELDS and not found:
            continue  # a heading
        if len(row) != len(FILE_FIELDS) or not row[0]:
            raise _wrong(name, number, "is not topic,partition,offset")
        topic, partition, offset = (field.strip() for field in row)
        for field, value, most in (("partition", partition, 2**31 - 1), ("offset", offset, OFFSET_MAX)):
            if not (value.isascii() and value.isdecimal() and len(value) < 20 and int(value) <= most):
                raise _wrong(name, number, f"has the {field} {value[:30]!r}, which is not a number from 0 up")
        key = topic, int(partition)
        if key in found:
            raise _wrong(name, number, f"contains {topic}-{partition} twice")
        found[key] = int(offset)
    if not found:
        raise CommandError(f"{name} contains no partition", hint=_HINT, code=ExitCode.USAGE)
    return found


_HINT = "a line is topic,partition,offset, such as orders,0,42; --export writes one"


def _rows(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text))
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise _wrong(name, reader.line_num, f"is not CSV ({error})") from error


def _wrong(name: str, number: int, what: str) -> CommandError:
    return CommandError(f"line {number} of {name} {what}", hint=_HINT, code=ExitCode.USAGE)
