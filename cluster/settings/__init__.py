"""A node's settings: one table (`table`) and its sources (`sources`).

table    every setting: name, default, unit, bounds, reason
sources  defaults, then a TOML file, then the environment, then flags
nodes    the format of `cluster.nodes`
"""

from cluster.settings.sources import load_settings
from cluster.settings.table import Setting, Settings, SettingsError, is_loopback, table

__all__ = ["Setting", "Settings", "SettingsError", "is_loopback", "load_settings", "table"]
