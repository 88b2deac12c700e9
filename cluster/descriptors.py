"""Room for every connection that the settings allow: each costs the process a file descriptor.

A process usually starts with a soft limit of 1,024 descriptors and a hard limit far above it. A node that
kept the soft limit would reach it before `max.connections`. Then the kernel would refuse clients without a
message, and the next segment of the log could not be opened. The limit is divided as follows:

    RESERVED              the process at rest: standard streams, the loop, listeners, modules being imported
    max.connections       Kafka clients, counted by their listener; as many for each older group protocol
    http.connections.max  HTTP clients, and the places that are reserved there
    STRANGERS_MAX         unidentified connections to the peer port, and two connections per peer
    CUT_MAX               connections to the peer port that were cut and still end
    descriptors_kept      files and pipes: no connection is accepted with one of these (`host.accepting`)

Invariants: a limit is only ever raised. If it cannot be raised far enough, that is logged once at
the start, and max.connections is reduced, never the share of files.
"""

from __future__ import annotations

import dataclasses
import logging
import resource
from typing import Final

from cluster.host.accepting import CUT_MAX
from cluster.http import places
from cluster.settings import Settings
from raftlog.transport.links import STRANGERS_MAX

LOG = logging.getLogger("quorate.main")

RESERVED: Final = 128
"""Descriptors of a node at rest: about thirty, and a few more for each shard."""

PIPES_KEPT: Final = 128
"""Descriptors for pipes: jobs take a few each, an answer from the archive two, a refused connection one
briefly."""

FILES_PER_SHARD: Final = 8
"""Descriptors per shard: the active segment, and segment, index, snapshot and directory while one is sealed,
archived or read."""


def descriptors_kept(settings: Settings) -> int:
    """Return how many descriptors below the limit are never given to a connection."""
    return PIPES_KEPT + FILES_PER_SHARD * (settings.cluster_shards + 1)


def descriptors_needed(settings: Settings) -> int:
    """Return how many descriptors a node with these settings may need at most."""
    between_nodes = STRANGERS_MAX + CUT_MAX + 2 * len(settings.cluster_nodes)
    clients = _num_listeners(settings) * settings.max_connections
    http = settings.http_connections_max + places.KEPT
    return RESERVED + clients + http + between_nodes + descriptors_kept(settings)


def _num_listeners(settings: Settings) -> int:
    """Return how many listeners have `max.connections` each: Kafka's, and those of older protocols."""
    return 1 + sum(port >= 0 for port in (settings.lineage_push_port, settings.lineage_rewrite_port))


def provide_descriptors(settings: Settings) -> Settings:
    """Raise the soft limit to what is needed, or to the hard limit with a warning if that is lower.

    Returns the settings, with `max.connections` reduced to what the limit has room for.
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
    too_many_each = -(-(needed - wanted) // _num_listeners(settings))
    fits = max(1, settings.max_connections - too_many_each)
    LOG.warning(
        "max.connections = %d needs %d file descriptors, but this process may open only %d and so serves %d "
        "connections; raise its hard limit (ulimit -Hn, LimitNOFILE=)",
        settings.max_connections,
        needed,
        wanted,
        fits,
    )
    return dataclasses.replace(settings, max_connections=fits)
