"""Descriptions of groups as a node answers them."""

from __future__ import annotations

from typing import Any


def member(name: str, **given: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "member_id": name,
        "number": None,
        "instance_id": None,
        "is_away": False,
        "client_id": f"client-{name}",
        "client_host": "10.0.0.1",
        "member_epoch": 3,
        "regex": None,
        "state": "STABLE",
        "assigned": {},
        "pending_revocation": {},
        "target": {},
        "waits_for": [],
        "last_heartbeat_ms": 99_600,
        "session_left_ms": 30_000.0,
        "last_refused": None,
    }
    return plain | given


def view(*members: dict[str, Any], **given: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "group_id": "billing",
        "type": "consumer",
        "state": "Reconciling",
        "epoch": 4,
        "assignment_epoch": 4,
        "assignor": "uniform",
        "assignor_error": None,
        "state_since_ms": 98_000,
        "heartbeat_interval_ms": 1_000,
        "session_timeout_ms": 45_000,
        "jobs": [],
        "computing": None,
        "regexes": [],
        "members": list(members),
        "refused_strangers": [],
    }
    return plain | given
