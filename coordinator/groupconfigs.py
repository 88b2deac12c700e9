"""The configs that a group may have of its own (Kafka's resource type GROUP), and what they come to.

A config stands in the metadata shard, independent of the group's life: it may be set before the group exists
and survives its deletion. What is stored is what somebody asked for; what holds for a group is that value
within the bounds of the broker's settings, which may have been narrowed since. The interval that members are
told stays below their session, whatever became of the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from coordinator.limits import GroupSettings

_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")
_INT32 = range(-(2**31), 2**31)

SESSION_INTERVALS: Final = 3
"""A member must be able to miss two heartbeats in a row before its session ends."""


class InvalidConfig(Exception):
    """A value that the config cannot have; the message says which, what it was and what is allowed."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One config: its name in requests, where its value and its bounds stand in `GroupSettings`."""

    name: str
    field: str
    documentation: str

    @property
    def broker_name(self) -> str:
        """The broker's setting that holds for groups without a value of their own."""
        return f"group.{self.name}"

    def bounds(self, broker: GroupSettings) -> tuple[int, int]:
        """The least and the greatest value that the broker allows."""
        stem = self.field.removesuffix("_ms")
        return getattr(broker, f"{stem}_min_ms"), getattr(broker, f"{stem}_max_ms")

    def default(self, broker: GroupSettings) -> int:
        value: int = getattr(broker, self.field)
        return value

    def parse(self, text: str, broker: GroupSettings) -> int:
        """The number that `text` says; raises `InvalidConfig` unless it is one within the bounds."""
        stripped = text.strip()
        value = int(stripped) if _NUMBER.fullmatch(stripped) else None
        if value is None or value not in _INT32:
            raise InvalidConfig(f"Invalid value {text[:100]!r} for {self.name}: not a 32-bit number of ms.")
        low, high = self.bounds(broker)
        if not low <= value <= high:
            stem = self.name.removeprefix("consumer.")
            raise InvalidConfig(
                f"Invalid value {value} for {self.name}: it must be from {low} (group.consumer.min.{stem}) "
                f"to {high} (group.consumer.max.{stem})."
            )
        return value


HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"

GROUP_CONFIGS: Final[dict[str, GroupConfig]] = {
    config.name: config
    for config in (
        GroupConfig(
            "consumer.session.timeout.ms",
            "session_timeout_ms",
            "How long a member may be silent before it is removed and its partitions go to others.",
        ),
        GroupConfig(
            HEARTBEAT_INTERVAL,
            "heartbeat_interval_ms",
            "How often members are told to heartbeat; a group that sets it is left alone by the adaptive "
            "interval.",
        ),
        GroupConfig(
            "consumer.assignment.interval.ms",
            "assignment_interval_ms",
            "The least time between two target assignments of the group; changes meanwhile become one.",
        ),
    )
}
"""By name; what stands here is all that a group can be configured to."""


def effective(broker: GroupSettings, configs: Mapping[str, str]) -> GroupSettings:
    """What holds for a group: its own values within the broker's bounds, the broker's where it has none.

    A stored name or value that this release does not know changes nothing."""
    changes: dict[str, Any] = {}
    for config in GROUP_CONFIGS.values():
        text = configs.get(config.name, "")
        if not _NUMBER.fullmatch(text):
            continue
        low, high = config.bounds(broker)
        changes[config.field] = min(max(int(text), low), high)
    return keep_sessions(replace(broker, **changes)) if changes else broker


def keep_sessions(settings: GroupSettings) -> GroupSettings:
    """The same with an interval below the session: else every member would expire between two heartbeats."""
    if settings.heartbeat_interval_ms < settings.session_timeout_ms:
        return settings
    return replace(settings, heartbeat_interval_ms=max(1, settings.session_timeout_ms // SESSION_INTERVALS))


def with_interval(settings: GroupSettings, interval_ms: int) -> GroupSettings:
    """The same with an interval that the node chose: a member may miss two heartbeats in a row, as far as the
    broker's minimum allows."""
    longest_ms = max(settings.session_timeout_ms // SESSION_INTERVALS, settings.heartbeat_interval_min_ms)
    return keep_sessions(replace(settings, heartbeat_interval_ms=min(interval_ms, longest_ms)))


class Origin(StrEnum):
    """Where the value that holds for a group comes from."""

    GROUP = "group"
    ADAPTIVE = "adaptive"
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class InForce:
    """What a config comes to for a group. `set_to` is what its origin says, None where the load does; `value`
    may be another: within the bounds `low` and `high`, or below the session."""

    name: str
    value: int
    origin: Origin
    set_to: int | None
    low: int
    high: int


def in_force(
    broker: GroupSettings, settings: GroupSettings, configs: Mapping[str, str], is_adaptive: bool
) -> Iterator[InForce]:
    """Every config of a group with `configs` of its own, for which `settings` hold; `is_adaptive`: the node
    chooses the interval of groups that set none."""
    for config in GROUP_CONFIGS.values():
        text = configs.get(config.name, "")
        if _NUMBER.fullmatch(text):
            origin, set_to = Origin.GROUP, int(text)
        elif is_adaptive and config.name == HEARTBEAT_INTERVAL:
            origin, set_to = Origin.ADAPTIVE, None
        else:
            origin, set_to = Origin.BROKER, config.default(broker)
        value: int = getattr(settings, config.field)
        yield InForce(config.name, value, origin, set_to, *config.bounds(broker))


def check_together(broker: GroupSettings, configs: Mapping[str, str]) -> None:
    """Raises `InvalidConfig` when the values, with the broker's for those not given, cannot go together."""
    values = {
        config.field: int(configs[config.name]) if config.name in configs else config.default(broker)
        for config in GROUP_CONFIGS.values()
    }
    if values["heartbeat_interval_ms"] >= values["session_timeout_ms"]:
        raise InvalidConfig(
            f"consumer.heartbeat.interval.ms = {values['heartbeat_interval_ms']} must be below "
            f"consumer.session.timeout.ms = {values['session_timeout_ms']}: every member would expire "
            "between two heartbeats."
        )


class ConfigsOfGroups:
    """Which groups have configs of their own, and their values as they were set."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, str]] = {}

    def __len__(self) -> int:
        """How many groups have any."""
        return len(self._by_group)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_group)

    def of(self, group_id: str) -> Mapping[str, str]:
        """The group's own values by name; empty where it has none."""
        return self._by_group.get(group_id, {})

    def put(self, group_id: str, name: str, value: str) -> None:
        self._by_group.setdefault(group_id, {})[name] = value

    def remove(self, group_id: str, name: str) -> None:
        configs = self._by_group.get(group_id)
        if configs is not None:
            configs.pop(name, None)
            if not configs:
                del self._by_group[group_id]
