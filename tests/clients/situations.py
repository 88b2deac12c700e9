"""The situations of docs/testing-clients.md: each is provoked, and the client's answer to it put in words.

`python -m tests.clients.situations [CLIENT ...]` prints the page's table of clients, for these or for all
that can run here. `ok`: the client did what the page expects; otherwise the cell says what it did.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from cluster.launching.launcher import NodeProcess, launch_node
from quorate.client import Client
from tests.clients.stage import SETTINGS, StagedGroup, StagedMember
from tests.report import count_fault
from tests.support import stock_clients
from tests.support.python_clients import MEMBERS
from tests.support.waiting import LOOK_AGAIN_S

OK, NOT_RUN = "ok", "not run"
TOLD_WITHIN_S = 5.0
"""Several polls of every client."""

LOADS_MS = 10_000
THROTTLED_MS = 5_000
LATE_MS, LATE_FOR_MS = 3_000, 4_000
"""librdkafka waits for one heartbeat interval."""

Situation = Callable[[StagedGroup], str]


def _applied(added: list[Callable[[], int]]) -> int:
    """The number of times that a fault was applied that is set in a callback."""
    return added[0]() if added else 0


def lost_join_reply(stage: StagedGroup) -> str:
    """The reply to the join is lost, not that with the member id."""
    applied = stage.fault("drop", stage.joins, after=1 if stage.is_classic else 0, times=1)
    member = stage.join("a")
    stage.wait(lambda: applied() == 1, "a lost reply")
    stage.goes_on(member)
    return OK


def lost_acknowledgement(stage: StagedGroup) -> str:
    """The reply to what a member says after it has given up partitions: a heartbeat, or SyncGroup."""
    first = stage.join_to_revoke("a")
    stage.goes_on(first)
    if stage.is_classic:
        applied = stage.fault("drop", "SyncGroup", first, times=1)
    else:
        added: list[Callable[[], int]] = []
        if not first.when_revoking(lambda: added.append(stage.fault("drop", stage.beats, first, times=1))):
            return NOT_RUN
        applied = partial(_applied, added)
    second = stage.join("b")
    stage.wait(lambda: applied() == 1, "a lost reply")
    stage.goes_on(first, second)
    return OK


def lost_commit_reply(stage: StagedGroup) -> str:
    member = stage.join("a")
    stage.goes_on(member)
    errors = len(member.errors)
    applied = stage.fault("drop", "OffsetCommit", times=1)
    stage.wait(lambda: applied() == 1, "a lost reply")
    stage.goes_on(member)
    return "ok: told the application" if len(member.errors) > errors else "ok: sent it again"


def late_replies(stage: StagedGroup) -> str:
    """Replies to heartbeats take longer than the client waits; one of them asks for a revocation."""
    first = stage.join("a")
    stage.goes_on(first)
    applied = stage.fault("delay", stage.beats, first, delay_ms=LATE_MS, for_ms=LATE_FOR_MS)
    second = stage.join("b")
    stage.wait(lambda: applied() >= 1, "a late reply")
    stage.goes_on(first, second)
    return "loses its partitions" if first.has_lost else OK


def fenced_while_revoking(stage: StagedGroup) -> str:
    """A heartbeat is fenced after the callback; a classic member is unknown when it joins again."""
    first = stage.join_to_revoke("a")
    stage.goes_on(first)
    if stage.is_classic:
        applied = stage.fault("error", "JoinGroup", first, error="UNKNOWN_MEMBER_ID", times=1)
    else:
        added: list[Callable[[], int]] = []

        def fence() -> None:
            added.append(stage.fault("error", stage.beats, first, error="FENCED_MEMBER_EPOCH", times=1))
            stage.wait(lambda: added[0]() == 1, "the error")

        if not first.when_revoking(fence):
            return NOT_RUN
        applied = partial(_applied, added)
    second = stage.join("b")
    stage.wait(lambda: applied() == 1, "the error")
    stage.goes_on(first, second)
    return OK if first.has_lost or stage.is_classic else "ok, but reports no loss"


def coordinator_moved_twice(stage: StagedGroup) -> str:
    member = stage.join("a")
    stage.goes_on(member)
    applied = stage.fault("error", stage.beats, error="NOT_COORDINATOR", times=2)
    stage.wait(lambda: applied() == 2, "both errors")
    stage.goes_on(member)
    return _loss(member) or OK


def coordinator_loads(stage: StagedGroup) -> str:
    """For ten seconds. Heartbeats of KIP-848 are not carried out meanwhile, so the session is longer.

    A classic heartbeat is no error while a coordinator loads."""
    member = stage.join("a", session_ms=2 * LOADS_MS)
    stage.goes_on(member)
    errors = len(member.errors)
    loads = partial(stage.fault, "error", error="COORDINATOR_LOAD_IN_PROGRESS", for_ms=LOADS_MS)
    loads("OffsetFetch")
    applied = [loads(api) for api in ("OffsetCommit", *([] if stage.is_classic else [stage.beats]))]
    stage.wait(lambda: all(times() for times in applied), "errors")
    stage.goes_on(member)
    if loss := _loss(member):
        return loss
    return "ok: commits fail" if len(member.errors) > errors else "ok: commits wait"


def group_id_not_found(stage: StagedGroup) -> str:
    """At a heartbeat; classic clients meet this error at a commit."""
    member = stage.join("a")
    stage.goes_on(member)
    errors = len(member.errors)
    api = "OffsetCommit" if stage.is_classic else stage.beats
    applied = stage.fault("error", api, error="GROUP_ID_NOT_FOUND", times=1)
    stage.wait(lambda: applied() == 1, "the error")
    return OK if _tells_soon(member, errors) else "goes on without a word"


def instance_not_released(stage: StagedGroup) -> str:
    """The instance id is another's: at the join, or with the classic protocol at a heartbeat (fenced)."""
    code = "FENCED_INSTANCE_ID" if stage.is_classic else "UNRELEASED_INSTANCE_ID"
    applied = stage.fault("error", stage.beats, error=code, times=3)
    member = stage.join("a", instance=f"i-{stage.group}")
    stage.wait(lambda: applied() >= 1, "the error")
    if _tells_soon(member, 0):
        return OK
    return "tells nobody, sends no more heartbeats" if applied() == 1 else "goes on without a word"


def _tells_soon(member: StagedMember, errors_before: int) -> bool:
    """Whether the application hears of an error within seconds."""
    began_s = time.monotonic()
    while time.monotonic() - began_s < TOLD_WITHIN_S:
        if len(member.errors) > errors_before:
            return True
        time.sleep(LOOK_AGAIN_S)
    return False


def stale_epoch_at_commit(stage: StagedGroup) -> str:
    member = stage.join("a")
    stage.goes_on(member)
    errors = len(member.errors)
    code = "ILLEGAL_GENERATION" if stage.is_classic else "STALE_MEMBER_EPOCH"
    applied = stage.fault("error", "OffsetCommit", error=code, times=1)
    stage.wait(lambda: applied() == 1, "the error")
    stage.goes_on(member)
    return "ok: told the application" if len(member.errors) > errors else "ok: commits again"


def topic_deleted_while_revoking(stage: StagedGroup) -> str:
    """There is nothing to commit: commits for a topic that is gone are another matter."""
    first = stage.join_to_revoke("a")
    stage.goes_on(first)
    stage.falls_silent(first)

    def delete() -> None:
        with Client(stage.bootstrap) as client:
            client.delete_topic(stage.topic)

    if stage.is_classic:  # it has revoked all when it joins again
        applied = stage.fault("delay", "JoinGroup", first, delay_ms=1_000, times=1)
        second = stage.join("b")
        stage.wait(lambda: applied() == 1, "the join")
        delete()
    else:
        if not first.when_revoking(delete):
            return NOT_RUN
        second = stage.join("b")
    try:
        stage.wait(lambda: not first.assigned and not second.assigned, "giving everything up")
    except AssertionError:
        return "keeps what was deleted"
    try:
        stage.wait(lambda: stage.members() == 2, "both to stay members")
    except AssertionError:
        return "leaves the group"
    return OK


def follower_lost_in_sync(stage: StagedGroup) -> str:
    """Its request is not carried out, and its connection is closed after a second."""
    if not stage.is_classic:
        return "–"
    first = stage.join("a")
    stage.goes_on(first)
    second = stage.named("b")
    applied = stage.fault("silence", "SyncGroup", client_id=second, delay_ms=1_000, times=1)
    follower = stage.join("b")
    stage.wait(lambda: applied() == 1, "the silence")
    stage.goes_on(first, follower)
    return OK


def leader_dies_before_sync(stage: StagedGroup) -> str:
    if not stage.is_classic:
        return "–"
    leader = stage.join("a", in_process=True)
    stage.wait(lambda: len(leader.assigned) == 4, "its partitions")
    applied = stage.fault("silence", "SyncGroup", leader, times=1)
    follower = stage.join("b")
    stage.wait(lambda: applied() == 1, "the silence")
    leader.kill()
    stage.goes_on(follower)
    return OK


def throttled_heartbeat(stage: StagedGroup) -> str:
    """Heartbeats are half a second apart, unless the client waits for several."""
    member = stage.join("a", session_ms=4 * THROTTLED_MS)
    stage.goes_on(member)
    applied = stage.fault("throttle", stage.beats, throttle_ms=THROTTLED_MS, times=2)
    stage.wait(lambda: applied() >= 1, "a throttled heartbeat")
    began_s = time.monotonic()
    stage.wait(lambda: applied() > 1, "the next one")
    waited_s = time.monotonic() - began_s
    stage.goes_on(member)
    return _loss(member) or (OK if waited_s > THROTTLED_MS / 2_000 else "does not wait")


def _loss(member: StagedMember) -> str:
    """The fate of the partitions of the only member, if it did not keep them."""
    if member.has_lost:
        return "loses its partitions"
    return "gives up its partitions, joins again" if member.gave_up else ""


SITUATIONS: dict[str, Situation] = {
    "1": lost_join_reply,
    "2": lost_acknowledgement,
    "2a": lost_commit_reply,
    "2b": late_replies,
    "3": fenced_while_revoking,
    "4": coordinator_moved_twice,
    "5": coordinator_loads,
    "6": group_id_not_found,
    "7": instance_not_released,
    "8": stale_epoch_at_commit,
    "9": topic_deleted_while_revoking,
    "10": follower_lost_in_sync,
    "11": leader_dies_before_sync,
    "12": throttled_heartbeat,
}
"""By the page's numbers."""


def outcome(node: NodeProcess, client: str, number: str) -> str:
    """Provoke one situation and return what the client did, or what it did not do in time."""
    if number == "7" and client == "kafkajs":
        return "–"  # it has no static members
    try:
        with StagedGroup(node, client) as stage:
            said = SITUATIONS[number](stage)
            count_fault("clients", "situation of a client")
            return said
    except AssertionError as error:
        first = error
        while isinstance(first.__context__, AssertionError):  # ending the members may fail for the same cause
            first = first.__context__
        return f"**{first}**"


def outcomes(node: NodeProcess, client: str, at_once: int) -> dict[str, str]:
    """Provoke all of them, some side by side: each has a group and a topic of its own."""
    with ThreadPoolExecutor(at_once) as pool:
        found = pool.map(lambda number: outcome(node, client, number), SITUATIONS)
        return dict(zip(SITUATIONS, found, strict=True))


def table(columns: dict[str, dict[str, str]]) -> str:
    lines = [["#", *columns], ["---"] * (len(columns) + 1)]
    lines += [[number, *(found[number] for found in columns.values())] for number in SITUATIONS]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def main() -> None:
    elsewhere = {name: one for name, one in stock_clients.CLIENTS.items() if one.missing() is None}
    clients = sys.argv[1:] or [*MEMBERS, *elsewhere]
    with tempfile.TemporaryDirectory() as folder:
        node = launch_node(Path(folder) / "node", settings=SETTINGS)
        try:
            columns = {}
            for client in clients:
                columns[client] = outcomes(node, client, at_once=6 if client in MEMBERS else 2)
                print(client, columns[client], file=sys.stderr, flush=True)
        finally:
            node.stop()
    print(table(columns), end="")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
