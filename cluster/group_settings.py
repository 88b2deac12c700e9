"""The settings in force on this node: the broker's, those of each group, the interval chosen for the load.

A group's configs are in the committed catalog, so all nodes use the same. The heartbeat interval of groups
that set none is this node's choice (`cluster.adaptive`), for the groups that it leads. The settings of a
group with configs are cached until the configs change, because every heartbeat of the group needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from coordinator.groupconfigs import HEARTBEAT_INTERVAL, effective, with_interval
from coordinator.limits import GroupSettings
from coordinator.topics import CatalogView


class CommittedSettings:
    """A `coordinator.limits.SettingsView`. `interval_ms` applies to the members of groups that set none."""

    def __init__(self, defaults: GroupSettings, catalog: Callable[[], CatalogView]) -> None:
        self.defaults = defaults
        self.interval_ms = defaults.heartbeat_interval_ms
        self.version = 1
        self._catalog = catalog
        self._shared = defaults
        self._known: dict[str, GroupSettings] = {}

    def for_group(self, group_id: str) -> GroupSettings:
        known = self._known.get(group_id)
        if known is not None:
            return known
        configs = self._catalog().configs.of(group_id)
        if not configs:
            return self._shared
        settings = effective(self.defaults, configs)
        if HEARTBEAT_INTERVAL not in configs:
            settings = with_interval(settings, self.interval_ms)
        self._known[group_id] = settings
        return settings

    def forget(self, group_ids: Iterable[str]) -> None:
        """Drop the cached settings of these groups, whose configs changed."""
        for group_id in group_ids:
            self._known.pop(group_id, None)

    def set_interval(self, interval_ms: int) -> None:
        """Set the interval of all groups that set none. A new value invalidates every cached reply."""
        if interval_ms == self.interval_ms:
            return
        self.interval_ms = interval_ms
        self.version += 1
        self._shared = with_interval(self.defaults, interval_ms)
        self._known.clear()

    def with_own_interval(self) -> Iterator[str]:
        """Yield the groups whose configs set an interval, whether or not the groups exist."""
        configs = self._catalog().configs
        return (group_id for group_id in configs if HEARTBEAT_INTERVAL in configs.of(group_id))
