"""The definition of a rule: the function that applies it, and its documentation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from history.facts.rows import Severity

from .case import NEAR, Case, Found, Horizon, Threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One diagnosis."""

    name: str
    severity: Severity
    title: str
    """A short description, for headings."""
    find: Callable[[Case], Iterable[Found]]
    means: str
    reads: str
    """The records and fields that it reads."""
    thresholds: tuple[Threshold, ...] = ()
    """The constants of this package that it compares with."""
    do: str
    """Advice on what to do about a finding."""
    covers: tuple[str, ...] = ()
    """Rules whose findings are dropped if they rest on the same entries."""
    horizon: Horizon = NEAR
    """Facts outside of it neither make nor change a finding."""
    needs_evidence: bool = False
    """True: it finds nothing without the node's evidence file."""

    def described(self) -> dict[str, Any]:
        """The rule's documentation as plain values."""
        return {
            "name": self.name,
            "severity": self.severity.value,
            "title": self.title,
            "means": self.means,
            "reads": self.reads,
            "thresholds": [
                {"name": one.name, "value": int(one), "reason": one.reason} for one in self.thresholds
            ],
            "do": self.do,
            "covers": list(self.covers),
            "needs_evidence": self.needs_evidence,
        }
