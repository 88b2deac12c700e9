"""Faults as an HTTP body would ask for them."""

from __future__ import annotations

from typing import Any

from cluster.faults.rule import FaultRule, rule_of

FIELDS = [
    *("action", "api", "group", "member", "client_id", "connection", "error"),
    *("delay_ms", "throttle_ms", "after", "times", "rate", "seed", "for_ms"),
]


def fault_rule(**given: Any) -> FaultRule:
    """Return the rule of a body with these fields."""
    return rule_of({name: given.get(name) for name in FIELDS})
