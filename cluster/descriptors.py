"""Room for every connection that the settings allow: each costs the process a file descriptor.

A process usually starts with a soft limit of 1,024 descriptors and a hard one far above. A node that keeps
the soft limit reaches it before `max.connections`, and then it is the kernel that refuses clients, without a
word, and also the next segment of the log.

What must stay true: a limit is only ever raised, and one that cannot be raised far enough is said once, at
the start, with the setting that would fit.
"""

from __future__ import annotations

import logging
import resource
from typing import Final

from cluster.settings import Settings

LOG = logging.getLogger("quorate.main")

RESERVED: Final = 256
"""For the process itself: standard streams, the loop, listeners, pipes of jobs, modules being imported."""

FILES_PER_SHARD: Final = 8
"""The active segment, and while one is sealed, archived or read: segment, index, snapshot and directory."""


def descriptors_needed(settings: Settings) -> int:
    """How many descriptors a node with these settings can come to hold."""
    num_shards = settings.cluster_shards + 1
    return settings.max_connections + settings.http_connections_max + FILES_PER_SHARD * num_shards + RESERVED


def provide_descriptors(settings: Settings) -> None:
    """Raises the soft limit to what is needed, or to the hard limit and says what that means."""
    needed = descriptors_needed(settings)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError):  # some kernels have a bound of their own below an unlimited hard limit
        wanted = soft
    if wanted < needed:
        fits = max(1, settings.max_connections - (needed - wanted))
        LOG.warning(
            "max.connections = %d needs %d file descriptors, and this process may have %d: raise its hard "
            "limit (ulimit -Hn, LimitNOFILE=) or set max.connections to %d",
            settings.max_connections,
            needed,
            wanted,
            fits,
        )
