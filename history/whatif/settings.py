"""The settings that are to be different, and the assignor that decides.

An assignor is given by its name, or as ``module:Class`` for one that is not installed. That module is
imported into this process, so only give what you would run. Its assignments are checked as they are live. One
that would be refused live ends the replay with an error, because there is no old target worth continuing
with.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from coordinator.assignors import (
    BUILT_IN,
    AssignmentSpec,
    GroupAssignment,
    PartitionAssignor,
    PartitionAssignorError,
)
from coordinator.assignors.assigning import normal
from coordinator.limits import GroupSettings
from history.render import duration

BUILT_IN_NAMES = tuple(assignor.name for assignor in BUILT_IN)
_BROKER = GroupSettings()


class WhatIfError(Exception):
    """The question cannot be answered; the message says what is wrong and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The settings that are to be different; ``None``: as recorded."""

    assignor: PartitionAssignor | None = None
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    """Rebalance timeout of every member, instead of its own."""
    heartbeat_interval_ms: int | None = None

    def __post_init__(self) -> None:
        """Raise `WhatIfError` for values that no group could be configured with."""
        _within("session timeout", self.session_timeout_ms, _BROKER.session_timeout_min_ms, 1_800_000)
        _within("rebalance timeout", self.rebalance_timeout_ms, 1, 2**31 - 1)
        _within("heartbeat interval", self.heartbeat_interval_ms, 1, 1_800_000)
        session_ms, interval_ms = self.session_timeout_ms, self.heartbeat_interval_ms
        if session_ms is not None and interval_ms is not None and interval_ms >= session_ms:
            raise WhatIfError(
                f"a heartbeat interval of {interval_ms} ms is not below the session timeout of {session_ms}"
                " ms: every member would expire between two heartbeats"
            )

    @property
    def is_same(self) -> bool:
        return self == WhatIf()

    def words(self) -> tuple[str, ...]:
        """``assignor range``, ``session timeout 6.0 s``."""
        said = [f"assignor {self.assignor.name}"] if self.assignor is not None else []
        said += [
            f"{name} {duration(value)}"
            for name, value in (
                ("session timeout", self.session_timeout_ms),
                ("rebalance timeout", self.rebalance_timeout_ms),
                ("heartbeat interval", self.heartbeat_interval_ms),
            )
            if value is not None
        ]
        return tuple(said) or ("nothing is changed",)


def _within(what: str, value: int | None, low: int, high: int) -> None:
    if value is not None and not low <= value <= high:
        raise WhatIfError(f"a {what} of {value} ms is out of range: use {low} to {high} ms")


class CheckedAssignor:
    """A user's assignor with the type checks that a node's child process makes."""

    def __init__(self, assignor: PartitionAssignor, name: str) -> None:
        self.name = name
        self._assignor = assignor

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        try:
            answered = self._assignor.assign(spec)
        except SystemExit as error:
            raise PartitionAssignorError(f"it wanted to end the process ({error})") from error
        return GroupAssignment(normal(answered, self.name))


def assignor_named(text: str) -> PartitionAssignor:
    """Return a built-in assignor by name, or the one at ``module:Class``; raises `WhatIfError`."""
    for assignor in BUILT_IN:
        if assignor.name == text:
            return assignor
    module_name, separator, attribute = text.partition(":")
    if not separator or not module_name or not attribute:
        raise WhatIfError(
            f"{text!r} is not an assignor: give {' or '.join(BUILT_IN_NAMES)}, or module:Class for your own"
        )
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the module's code may raise anything
        raise WhatIfError(
            f"module {module_name} cannot be imported: {type(error).__name__}: {error};"
            " its directory must be on PYTHONPATH"
        ) from error
    found = getattr(module, attribute, None)
    if found is None:
        raise WhatIfError(f"module {module_name} has no {attribute}")
    try:
        made = found() if isinstance(found, type) else found
    except Exception as error:
        raise WhatIfError(
            f"{text} cannot be created without arguments: {type(error).__name__}: {error}"
        ) from error
    if not callable(getattr(made, "assign", None)):
        raise WhatIfError(
            f"{text} is not an assignor: it has no method assign (see `quorate docs assignors`)"
        )
    name = getattr(made, "name", None)
    return CheckedAssignor(made, name if isinstance(name, str) and name else text)
