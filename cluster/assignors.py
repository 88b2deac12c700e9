"""Assignors that users install: packages with an entry point in the group `quorate.assignors`.

The name of the entry point is the name of the assignor. It refers to an assignor, or to a class that is
instantiated without arguments (docs/assignors.md). The node only checks whether one is installed, and does so
only for names that are not built in. Only child processes import the code.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from coordinator.assignors import PartitionAssignor, PartitionAssignorError

GROUP: Final = "quorate.assignors"

RACKS_GROUP: Final = "quorate.assignors.racks"
"""The entry points that repeat the names of assignors that want to know the racks of partitions."""


def installed() -> dict[str, list[EntryPoint]]:
    """Return every entry point by name; a name has more than one if packages conflict over it."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        known = found.setdefault(point.name, [])
        if all(point.value != other.value for other in known):  # a package may be on the path twice
            known.append(point)
    return found


def asking_for_racks() -> frozenset[str]:
    """Return the names of the assignors that want to know the racks of partitions."""
    return frozenset(point.name for point in entry_points(group=RACKS_GROUP))


def problem_with(names: Iterable[str]) -> str | None:
    """Return a message saying why one of these assignors cannot be used, or None if all can."""
    there = installed()
    for name in names:
        points = there.get(name, [])
        if not points:
            others = (
                f"Installed: {', '.join(sorted(there))}"
                if there
                else "No installed package provides an assignor"
            )
            return f"{name!r} is not installed either (entry points {GROUP}). {others}"
        if len(points) > 1:
            owners = " and ".join(sorted(point.value for point in points))
            return f"{name!r} is installed more than once, by {owners}: uninstall all but one"
    return None


def load(name: str) -> PartitionAssignor:
    """Import the assignor and return it.

    Raises `PartitionAssignorError` if it is not installed exactly once, and whatever its import raises.
    """
    points = installed().get(name, [])
    if len(points) != 1:
        raise PartitionAssignorError(problem_with([name]) or f"{name} cannot be loaded")
    loaded = points[0].load()
    assignor: PartitionAssignor = loaded() if isinstance(loaded, type) else loaded
    return assignor
