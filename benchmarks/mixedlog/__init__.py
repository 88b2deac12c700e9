"""Long, realistic logs, written to real directories and reproducible by seed.

files   segments, their indexes and snapshots, as a node writes them
groups  a group's members on their way from target to target
steady  one shard with the same mix throughout: for rates
plan    events in the processes of many services over days
life    several shards over days by that plan: for queries
held    a log's newest entries, held back and given again in batches
"""

from .files import Written
from .held import hold_back
from .life import Life, write_life
from .plan import Plan
from .steady import group_name, write_log

__all__ = ["Life", "Plan", "Written", "group_name", "hold_back", "write_life", "write_log"]
