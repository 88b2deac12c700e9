"""The faults of one node, in the order of their ids.

Invariants: at most FAULTS_MAX faults are kept, in memory alone; a request meets at most one of them, the
first that matches and chooses it; a fault that has ended is listed with its count until its place is needed.
`is_set` is false unless a fault can still apply, so that requests cost nothing more without one.
"""

from __future__ import annotations

from typing import Any, Final

from cluster.faults.rule import Asked, FaultError, FaultRule

FAULTS_MAX: Final = 100
"""At most this many faults on one node: each may be compared with every request."""

ID_MAX: Final = 2**31 - 1


class Fault:
    """A rule in force, and how often it has been applied."""

    __slots__ = ("applied", "ends_ms", "fault_id", "rule", "seen")

    def __init__(self, fault_id: int, rule: FaultRule, now_ms: float) -> None:
        self.fault_id = fault_id
        self.rule = rule
        self.ends_ms = None if rule.for_ms is None else now_ms + rule.for_ms
        self.seen = 0
        self.applied = 0

    def has_ended(self, now_ms: float) -> bool:
        is_over = self.ends_ms is not None and now_ms >= self.ends_ms
        return is_over or (self.rule.times is not None and self.applied >= self.rule.times)

    def takes(self, asked: Asked) -> bool:
        """Whether it applies to this request; counts it."""
        if not self.rule.matches(asked):
            return False
        self.seen += 1
        if not self.rule.chooses(self.seen):
            return False
        self.applied += 1
        return True

    def as_dict(self, now_ms: float) -> dict[str, Any]:
        has_ended = self.has_ended(now_ms)
        left_ms = None if self.ends_ms is None or has_ended else round(self.ends_ms - now_ms)
        return {
            "id": self.fault_id,
            **self.rule.as_dict(),
            "words": self.rule.words(),
            "matched": self.seen,
            "applied": self.applied,
            "has_ended": has_ended,
            "left_ms": left_ms,
        }


class FaultTable:
    """All faults of a node; the caller passes in the time."""

    def __init__(self) -> None:
        self.is_set = False
        self.next_id = 1
        self._faults: dict[int, Fault] = {}

    def add(self, rule: FaultRule, now_ms: float, fault_id: int | None = None) -> Fault:
        """Set a fault under the next id, or under one that other nodes use for it. Raises FaultError."""
        if fault_id is None:
            fault_id = self.next_id
        if fault_id in self._faults:
            raise FaultError(f"there is a fault {fault_id} already", f"the next free id is {self.next_id}")
        if len(self._faults) >= FAULTS_MAX:
            ended = next((known for known, one in self._faults.items() if one.has_ended(now_ms)), None)
            if ended is None:
                raise FaultError(f"{FAULTS_MAX} faults are set, and none has ended", "clear some first")
            del self._faults[ended]
        fault = self._faults[fault_id] = Fault(fault_id, rule, now_ms)
        self.next_id = max(self.next_id, fault_id + 1)
        self.is_set = True
        return fault

    def clear(self, fault_id: int | None = None) -> int:
        """End and forget one fault, or all; return how many that were."""
        if fault_id is None:
            num_cleared = len(self._faults)
            self._faults.clear()
        else:
            num_cleared = 0 if self._faults.pop(fault_id, None) is None else 1
        self.is_set = bool(self._faults)
        return num_cleared

    def match(self, asked: Asked, now_ms: float) -> Fault | None:
        """Return the fault that applies to a request, if any."""
        is_set = False
        for fault in self._faults.values():
            if fault.has_ended(now_ms):
                continue
            if fault.takes(asked):
                self.is_set = any(not one.has_ended(now_ms) for one in self._faults.values())
                return fault
            is_set = True
        self.is_set = is_set
        return None

    def listed(self, now_ms: float) -> list[dict[str, Any]]:
        return [fault.as_dict(now_ms) for _, fault in sorted(self._faults.items())]
