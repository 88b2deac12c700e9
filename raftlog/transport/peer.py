"""The state of one configured peer, and the rate limit of log lines about it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final

from raftlog.env.host import Host
from raftlog.transport.contract import PeerAddress, PeerInfo
from raftlog.transport.link import Link

LOG = logging.getLogger("quorate.peers")

NOTES_MAX: Final = 5
NOTES_PERIOD_MS: Final = 30_000
"""Milliseconds in which at most `NOTES_MAX` lines of a kind are logged.

A peer that is away or refused is dialled four times a second.
"""

SKEW_MS: Final = 1_000
"""A greater difference of wall clocks is logged: timestamps of the log jump at a failover."""

SKEW_AGREES_MS: Final = 500
"""Below this difference clocks that differed agree again; between the two bounds nothing is logged."""


@dataclass(slots=True)
class Peer:
    """One other node of the cluster."""

    address: PeerAddress
    is_dialled: bool
    """Whether its id is smaller than ours, so that we open the connection."""
    changed_ms: float
    link: Link | None = None
    """The link that is up; no other one delivers anything."""
    info: PeerInfo | None = None
    """Its last hello and what was learned since, also after the link went down; None before the first."""
    trouble: str = ""
    """The reason why there is no link, from the last attempt."""
    dials: int = 0
    failures: int = 0
    """Dials since the link was last up."""
    last_attempt: tuple[str, int] = ("", 0)
    """Boot id and number of the peer's dial that came up last."""
    skew_noted_ms: float = 0.0
    past_bytes_in: int = 0
    past_bytes_out: int = 0

    def status(self, now_ms: float) -> dict[str, Any]:
        """The peer's state; JSON-ready."""
        link = self.link
        shown: dict[str, Any] = {
            "node_id": self.address.node_id,
            "address": str(self.address),
            "state": "up" if link is not None else "down",
            "for_ms": round(now_ms - self.changed_ms),
            "trouble": self.trouble or None,
            "dials": self.dials,
            "bytes_in": self.past_bytes_in + (link.bytes_in if link is not None else 0),
            "bytes_out": self.past_bytes_out + (link.bytes_out if link is not None else 0),
        }
        if link is not None and (info := self.info) is not None:
            shown |= {
                "release": info.release,
                "incarnation": info.incarnation,
                "boot_id": info.boot_id,
                "format_level_max": info.format_level_max,
                "clock_skew_ms": round(info.clock_skew_ms, 1),
            }
        return shown

    def note_skew(self, skew_ms: float) -> None:
        """Log when the clocks begin to differ, differ by much more, or agree again."""
        if abs(skew_ms) > SKEW_MS and abs(skew_ms - self.skew_noted_ms) > SKEW_MS:
            self.skew_noted_ms = skew_ms
            way = "ahead of" if skew_ms > 0 else "behind"
            LOG.warning(
                "the wall clock of node %d is %.1f s %s this node's: synchronise both by NTP",
                self.address.node_id,
                abs(skew_ms) / 1000,
                way,
            )
        elif self.skew_noted_ms and abs(skew_ms) < SKEW_AGREES_MS:
            self.skew_noted_ms = 0.0
            LOG.info("the wall clock of node %d agrees with this node's again", self.address.node_id)


class Notes:
    """Rate-limited log lines: a few of each kind per half minute; the rest are counted."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._periods: dict[tuple[int | None, str], tuple[float, int]] = {}

    def write(self, node_id: int | None, kind: str, level: int, text: str) -> None:
        """Write a line; `node_id` is a configured peer, or None for others, so that the kinds stay few."""
        now_ms = self._host.monotonic_ms()
        started_ms, count = self._periods.get((node_id, kind), (now_ms, 0))
        more = ""
        if now_ms - started_ms >= NOTES_PERIOD_MS:
            if count > NOTES_MAX:
                more = f" ({count - NOTES_MAX} similar lines were suppressed)"
            started_ms, count = now_ms, 0
        self._periods[node_id, kind] = (started_ms, count + 1)
        if count < NOTES_MAX:
            LOG.log(level, "%s%s", text, more)
