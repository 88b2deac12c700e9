"""Room for every connection that the settings allow: each costs the process a file descriptor.

A process usually starts with a soft limit of 1,024 descriptors and a hard one far above. A node that keeps
the soft limit reaches it before `max.connections`, and then it is the kernel that refuses clients, without a
word, and also the next segment of the log. The limit is divided so:

    RESERVED              the process at rest: standard streams, the loop, listeners, modules being imported
    max.connections       Kafka clients, counted by their listener
    http.connections.max  the same of HTTP, and the places that are kept there
    STRANGERS_MAX         of the port between nodes, and two connections per peer
    descriptors_kept      files and pipes: no connection is accepted with one of these (`host.accepting`)

What must stay true: a limit is only ever raised; one that cannot be raised far enough is said once, at the
start, and takes from max.connections, never from the files.
"""

from __future__ import annotations

import dataclasses
import logging
import resource
from typing import Final

from cluster.http import places
from cluster.settings import Settings
from raftlog.peers.links import STRANGERS_MAX

LOG = logging.getLogger("quorate.main")

RESERVED: Final = 128
"""A node at rest has about thirty, and a few more for each shard."""

PIPES_KEPT: Final = 128
"""Jobs take a few each, an answer from the archive two, a connection that is refused one for a moment."""

FILES_PER_SHARD: Final = 8
"""The active segment, and while one is sealed, archived or read: segment, index, snapshot and directory."""


def descriptors_kept(settings: Settings) -> int:
    """How many of the limit no connection gets."""
    return PIPES_KEPT + FILES_PER_SHARD * (settings.cluster_shards + 1)


def descriptors_needed(settings: Settings) -> int:
    """How many descriptors a node with these settings can come to hold."""
    between_nodes = STRANGERS_MAX + 2 * len(settings.cluster_nodes)
    clients = settings.max_connections + settings.http_connections_max + places.KEPT
    return RESERVED + clients + between_nodes + descriptors_kept(settings)


def provide_descriptors(settings: Settings) -> Settings:
    """Raises the soft limit to what is needed, or to the hard limit and says what that means.

    The settings with as many `max.connections` as the limit has room for.
    """
    needed = descriptors_needed(settings)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return settings
    wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError):  # some kernels have a bound of their own below an unlimited hard limit
        wanted = soft
    if wanted >= needed:
        return settings
    fits = max(1, settings.max_connections - (needed - wanted))
    LOG.warning(
        "max.connections = %d needs %d file descriptors, and this process may have %d: it serves %d "
        "connections; raise its hard limit (ulimit -Hn, LimitNOFILE=)",
        settings.max_connections,
        needed,
        wanted,
        fits,
    )
    return dataclasses.replace(settings, max_connections=fits)
