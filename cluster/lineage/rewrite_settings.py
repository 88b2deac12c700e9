"""The node's settings of seed 000, as its coordinator has them."""

from __future__ import annotations

from cluster.settings import Settings
from lineage.rewrite.bounds import RewriteSettings


def rewrite_settings(settings: Settings) -> RewriteSettings:
    """Return the settings of the coordinators of all shards."""
    return RewriteSettings(
        max_session_timeout_ms=settings.lineage_rewrite_max_session_timeout_ms,
        strategies=frozenset(settings.lineage_rewrite_partition_assignment_strategies),
    )
