"""Assignors that users install: packages with an entry point in the group `quorate.assignors`.

The entry point's name is the assignor's; what it points at is an assignor, or a class of which one is made
without arguments (docs/assignors.md). The node only looks whether one is there, and does so only for names
that are not ours; their code is imported by child processes alone."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from coordinator.assignors import PartitionAssignor, PartitionAssignorError

GROUP: Final = "quorate.assignors"

RACKS_GROUP: Final = "quorate.assignors.racks"
"""The same names again, of those assignors that ask for the racks of partitions."""


def installed() -> dict[str, list[EntryPoint]]:
    """Every entry point by name; more than one under a name if packages contend for it."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        known = found.setdefault(point.name, [])
        if all(point.value != other.value for other in known):  # a package may be on the path twice
            known.append(point)
    return found


def asking_for_racks() -> frozenset[str]:
    """The names of those that ask for the racks of partitions."""
    return frozenset(point.name for point in entry_points(group=RACKS_GROUP))


def problem_with(names: Iterable[str]) -> str | None:
    """What is wrong with assignors of these names, in words; None if each is installed once."""
    there = installed()
    for name in names:
        points = there.get(name, [])
        if not points:
            others = f"Installed: {', '.join(sorted(there))}" if there else "No package has installed any"
            return f"{name!r} is not installed either (entry points {GROUP}). {others}"
        if len(points) > 1:
            owners = " and ".join(sorted(point.value for point in points))
            return f"{name!r} is installed more than once, by {owners}: uninstall all but one"
    return None


def load(name: str) -> PartitionAssignor:
    """Imports the assignor; raises `PartitionAssignorError` where there is none, and whatever importing
    raises."""
    points = installed().get(name, [])
    if len(points) != 1:
        raise PartitionAssignorError(problem_with([name]) or f"{name} cannot be loaded")
    loaded = points[0].load()
    assignor: PartitionAssignor = loaded() if isinstance(loaded, type) else loaded
    return assignor
