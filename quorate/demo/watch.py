"""Observing the cluster from outside while the demo runs: the nodes over HTTP, the clients by their files.

A wait has a name and a time limit; when that passes, the demo's claim of that name did not hold.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quorate.demo.evidence import ConsumerEvidence
from quorate.errors import CommandError, ExitCode
from quorate.http_client import HttpRefused, ask_json

POLL_S = 0.02
HTTP_TIMEOUT_S = 1.0
NOT_NOW = (404, 503)  # the group does not exist yet, or its shard does not serve yet


@dataclass(frozen=True, slots=True)
class SeenMember:
    """A member as the node shows it."""

    client_id: str
    member_id: str
    partitions: frozenset[int]
    last_heartbeat_ms: int
    """Wall-clock time of the last heartbeat accepted by the current leader, −1 if none yet."""


@dataclass(frozen=True, slots=True)
class SeenGroup:
    """A group as the node shows it, one member per client id."""

    state: str
    epoch: int
    members: dict[str, SeenMember]

    def owners(self) -> dict[str, frozenset[int]]:
        return {name: member.partitions for name, member in self.members.items()}

    def is_balanced(self, names: set[str], num_partitions: int) -> bool:
        """Whether the group is stable with exactly these members, and every partition has one owner."""
        owned = [partition for member in self.members.values() for partition in member.partitions]
        return (
            self.state.lower() == "stable"
            and set(self.members) == names
            and sorted(owned) == list(range(num_partitions))
        )


def see_shards(url: str) -> dict[int, Any]:
    """Every shard of /v1/cluster by number, −1 is metadata; empty while the node does not answer."""
    try:
        rows = ask_json(f"{url}/v1/cluster", HTTP_TIMEOUT_S)["shards"]
    except CommandError:
        return {}
    return {row["shard"]: row for row in rows}


def see_leader(urls: Sequence[str], shard: int) -> int | None:
    """The shard's leader if most of the nodes name the same one; None during an election."""
    votes = Counter(seen[shard]["leader_id"] for url in urls if (seen := see_shards(url)))
    leader, count = votes.most_common(1)[0] if votes else (None, 0)
    return leader if 2 * count > len(urls) else None


def see_group(urls: Sequence[str], group: str, topic: str) -> SeenGroup | None:
    """The group as its leader shows it, whichever node is asked; None while no node answers."""
    for url in urls:
        try:
            view = ask_json(f"{url}/v1/groups/{group}?consistent=1", HTTP_TIMEOUT_S)["group"]
        except HttpRefused as error:
            if error.answer.status not in NOT_NOW:
                raise
        except CommandError:
            continue
        else:
            return _seen_group(view, topic)
    return None


def _seen_group(view: Mapping[str, Any], topic: str) -> SeenGroup:
    members = {
        member["client_id"]: SeenMember(
            client_id=member["client_id"],
            member_id=member["member_id"],
            partitions=frozenset(member["assigned"].get(topic, ())),
            last_heartbeat_ms=-1 if member["last_heartbeat_ms"] is None else member["last_heartbeat_ms"],
        )
        for member in view["members"]
    }
    return SeenGroup(view["state"], view["epoch"], members)


def agree(
    seen: SeenGroup | None, evidence: dict[str, ConsumerEvidence], names: set[str], num_partitions: int
) -> bool:
    """Whether node and clients agree: balanced, and each client owns what the node says."""
    if seen is None or not seen.is_balanced(names, num_partitions):
        return False
    return all(evidence[name].owned == seen.members[name].partitions for name in names)


def wait_until(what: str, ready: Callable[[float], bool], timeout_s: float) -> float:
    """Poll `ready(elapsed_s)` until true and return the seconds it took; raises `CommandError`."""
    started_s = time.monotonic()
    while True:
        elapsed_s = time.monotonic() - started_s
        if ready(elapsed_s):
            return elapsed_s
        if elapsed_s > timeout_s:
            raise CommandError(f"{what} did not happen within {timeout_s:g} s", code=ExitCode.FAILED)
        time.sleep(POLL_S)
