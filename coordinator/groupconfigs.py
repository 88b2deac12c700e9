"""Configs of individual groups (Kafka's resource type GROUP), and the values that take effect.

A config is stored in the metadata shard, independently of the group's life: it may be set before the group
exists, and survives its deletion. The stored value is the one requested. The effective value lies within the
bounds of the broker's settings, which may have been narrowed since. The effective heartbeat interval is
always below the session timeout.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from coordinator.limits import GroupSettings

_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")
_INT32 = range(-(2**31), 2**31)

SESSION_INTERVALS: Final = 3
"""Heartbeat intervals per session: a member must be able to miss two heartbeats in a row."""


class InvalidConfig(Exception):
    """A value that the config cannot have. The message names the config, the value and what is allowed."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One config: its name in requests, and the field of `GroupSettings` with its value and bounds."""

    name: str
    field: str
    documentation: str

    @property
    def broker_name(self) -> str:
        """Name of the broker's setting, which applies to groups without a value of their own."""
        return f"group.{self.name}"

    def bounds(self, broker: GroupSettings) -> tuple[int, int]:
        """The smallest and the largest value that the broker allows."""
        stem = self.field.removesuffix("_ms")
        return getattr(broker, f"{stem}_min_ms"), getattr(broker, f"{stem}_max_ms")

    def default(self, broker: GroupSettings) -> int:
        value: int = getattr(broker, self.field)
        return value

    def parse(self, text: str, broker: GroupSettings) -> int:
        """Parse a config value. Raises `InvalidConfig` unless it is a number within the bounds."""
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
            "How long a member may go without a heartbeat before it is removed and its partitions are "
            "reassigned.",
        ),
        GroupConfig(
            HEARTBEAT_INTERVAL,
            "heartbeat_interval_ms",
            "Interval between a member's heartbeats; setting it disables the adaptive interval for the "
            "group.",
        ),
        GroupConfig(
            "consumer.assignment.interval.ms",
            "assignment_interval_ms",
            "Shortest time between two target assignments of the group; changes in between are combined.",
        ),
    )
}
"""All configs that can be set for a group, by name."""


TOPIC_NAME_CHARS_MAX: Final = 249
"""Kafka's maximum for the name of a topic."""

PUSH_TOPICS_MAX: Final = 100
"""Topics of one push group: their names are one config."""

PUSH_WAIT_MS: Final = range(100, 600_001)


def _parse_topics(text: str) -> str:
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    if "" in names or len(names) > PUSH_TOPICS_MAX or max(map(len, names)) > TOPIC_NAME_CHARS_MAX:
        raise ValueError(f"1 to {PUSH_TOPICS_MAX} names of topics, separated by commas")
    return ",".join(names)


def _parse_wait(text: str) -> str:
    if not _NUMBER.fullmatch(text.strip()) or int(text) not in PUSH_WAIT_MS:
        raise ValueError(f"a number of ms from {PUSH_WAIT_MS.start} to {PUSH_WAIT_MS.stop - 1}")
    return str(int(text))


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if (word := text.strip()) not in words:
            raise ValueError(" or ".join(words))
        return word

    return parse


@dataclass(frozen=True, slots=True)
class PushConfig:
    """A config of groups of the push protocol: name in requests, default, and what checks a value."""

    name: str
    default: str
    documentation: str
    check: Callable[[str], str]

    def parse(self, text: str, broker: GroupSettings) -> str:
        """Return the value as it is stored. Raises `InvalidConfig`."""
        try:
            return self.check(text)
        except ValueError as allowed:
            raise InvalidConfig(
                f"Invalid value {text[:100]!r} for {self.name}: it must be {allowed}."
            ) from None

    def value_of(self, configs: Mapping[str, str]) -> str:
        """The group's own value, or the default."""
        return configs.get(self.name, self.default)


PUSH_TOPICS: Final = PushConfig(
    "push.topics",
    "",
    "The topics that the group's consumers share out, separated by commas; Register names none.",
    _parse_topics,
)
PUSH_FAILOVER: Final = PushConfig(
    "push.failover",
    "log",
    "What a new coordinator does: log: it reads who was registered; wait: it waits until all have registered "
    "again, as the protocol was designed.",
    _one_of("log", "wait"),
)
PUSH_WAIT: Final = PushConfig(
    "push.reregister.wait.ms",
    "6000",
    "How long a new coordinator waits with push.failover = wait.",
    _parse_wait,
)
PUSH_OFFSET_COMMIT: Final = PushConfig(
    "push.offset.commit",
    "true",
    "Whether consumers without auto_commit may commit with OffsetCommit; otherwise they cannot commit.",
    _one_of("true", "false"),
)
PUSH_CONFIGS: Final = {
    config.name: config for config in (PUSH_TOPICS, PUSH_FAILOVER, PUSH_WAIT, PUSH_OFFSET_COMMIT)
}
"""The configs of groups of the push protocol, by name (docs/generations.md)."""


def effective(broker: GroupSettings, configs: Mapping[str, str]) -> GroupSettings:
    """The effective settings of a group.

    These are its own values, clamped to the broker's bounds, and the broker's values where it has none. A
    stored name or value that this release does not know is ignored."""
    changes: dict[str, Any] = {}
    for config in GROUP_CONFIGS.values():
        text = configs.get(config.name, "")
        if not _NUMBER.fullmatch(text):
            continue
        low, high = config.bounds(broker)
        changes[config.field] = min(max(int(text), low), high)
    return keep_sessions(replace(broker, **changes)) if changes else broker


def keep_sessions(settings: GroupSettings) -> GroupSettings:
    """Return the settings with a heartbeat interval below the session timeout.

    Otherwise, every member would expire between two heartbeats."""
    if settings.heartbeat_interval_ms < settings.session_timeout_ms:
        return settings
    return replace(settings, heartbeat_interval_ms=max(1, settings.session_timeout_ms // SESSION_INTERVALS))


def with_interval(settings: GroupSettings, interval_ms: int) -> GroupSettings:
    """Return the settings with an interval chosen by the node.

    A member may miss two heartbeats in a row, as far as the broker's minimum allows."""
    longest_ms = max(settings.session_timeout_ms // SESSION_INTERVALS, settings.heartbeat_interval_min_ms)
    return keep_sessions(replace(settings, heartbeat_interval_ms=min(interval_ms, longest_ms)))


class Origin(StrEnum):
    """Source of a group's effective value."""

    GROUP = "group"
    ADAPTIVE = "adaptive"
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class InForce:
    """The effective value of a config for a group.

    `set_to` is the value that its origin specifies, or None if the node chooses it by load. `value` may
    differ from it: it is within the bounds `low` and `high`, and an interval is below the session timeout."""

    name: str
    value: int
    origin: Origin
    set_to: int | None
    low: int
    high: int


def in_force(
    broker: GroupSettings, settings: GroupSettings, configs: Mapping[str, str], is_adaptive: bool
) -> Iterator[InForce]:
    """Yield the effective value of every config of a group.

    `configs` are the group's own configs, `settings` its effective settings. `is_adaptive` says whether the
    node chooses the heartbeat interval for groups that set none."""
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
    """Raise `InvalidConfig` if the values contradict each other, or the broker's where none is given."""
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
    """The groups that have configs of their own, and the values as they were set."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, str]] = {}

    def __len__(self) -> int:
        """Number of groups with configs of their own."""
        return len(self._by_group)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_group)

    def of(self, group_id: str) -> Mapping[str, str]:
        """The group's own values by name; empty if it has none."""
        return self._by_group.get(group_id, {})

    def put(self, group_id: str, name: str, value: str) -> None:
        self._by_group.setdefault(group_id, {})[name] = value

    def remove(self, group_id: str, name: str) -> None:
        configs = self._by_group.get(group_id)
        if configs is not None:
            configs.pop(name, None)
            if not configs:
                del self._by_group[group_id]
