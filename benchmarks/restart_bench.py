"""Starting, and restarting after kill -9: `python -m benchmarks.restart_bench [--only NAME]`.

Real node processes with default settings. Commits go over the wire, 100 partitions a request, while snapshots
are taken as usual; the node is killed when the last commit is acknowledged, whatever its children are doing.
A start is timed from before the process is created until a member's join, which is sent repeatedly, is
accepted. Meanwhile a refused connection and error 14 are expected; a wait of a second is a hang.
"""

from __future__ import annotations

import argparse
import select
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from benchmarks import gaps, load
from benchmarks.figures import children_of, peak_mib, report
from cluster.launching.launcher import NodeProcess, launch_node
from records import shard_of
from wire.apis import ApiKey
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

COMMITS = 1_000_000
LONGEST_TAIL = 700_000
"""Just below the size at which the four shards take their first snapshots, so that all of it is replayed."""
PARTITIONS = 100
CONNECTIONS = 4
IN_FLIGHT = 4
MEMBERS = 50
LARGE_MEMBERS = 1_000
LARGE_PARTITIONS = 10_000
LOADING = 14
JOINED = "joined"
REFUSED = "refused connection"
HANG_S = 1.0
RETRY_S = 0.005
START_TIMEOUT_S = 60.0
SAMPLE_S = 0.05
MIB = 1 << 20


# Starts


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start: seconds until the first and the last shard accepted a join, and CPU seconds by then.

    `answers` counts the answers before that.
    """

    first_s: float
    last_s: float
    cpu_s: float
    answers: Counter[str]

    def __str__(self) -> str:
        met = ", ".join(f"{count} x {what}" for what, count in self.answers.most_common())
        return f"{self.first_s:.2f} s, all shards {self.last_s:.2f} s ({self.cpu_s:.2f} s CPU; {met})"


def timed_start(node: NodeProcess) -> Start:
    """Start a stopped node and join a group of each shard as soon as it admits members."""
    num_shards = len(list(node.data.glob("shard-*")))
    waiting = list({shard_of(name, num_shards): name for name in map(str, range(100))}.values())
    answers: Counter[str] = Counter()
    joined_s: list[float] = []
    starting = threading.Thread(target=node.start)
    begin = time.perf_counter()
    starting.start()
    while waiting:
        for group_id in tuple(waiting):
            answer = _ask_to_join(node, group_id)
            if answer == JOINED:
                waiting.remove(group_id)
                joined_s.append(time.perf_counter() - begin)
                continue
            answers[answer] += 1
            if answer == REFUSED:
                break  # the node does not listen yet, whatever the group
        if time.perf_counter() - begin > START_TIMEOUT_S:
            raise RuntimeError(f"no join within {START_TIMEOUT_S:.0f} s: {answers}")
        time.sleep(RETRY_S)
    cpu_s = load.cpu_seconds(node.pid)
    starting.join()
    return Start(first_s=joined_s[0], last_s=joined_s[-1], cpu_s=cpu_s, answers=answers)


def _ask_to_join(node: NodeProcess, group_id: str) -> str:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id="first",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    try:
        peer = load.Peer((node.host, node.port))
    except ConnectionRefusedError:
        return REFUSED
    try:
        peer.socket.settimeout(HANG_S)
        answer = peer.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, load.HEARTBEAT_VERSION, request)
    except TimeoutError:
        raise RuntimeError(f"the node did not answer within {HANG_S:.0f} s while it started") from None
    except ConnectionError:
        return "closed connection"
    finally:
        peer.close()
    if answer.error_code not in (0, LOADING):
        raise RuntimeError(f"join failed: error {answer.error_code} {answer.error_message}")
    return "error 14" if answer.error_code else JOINED


# Commits


class Children:
    """Watches the node's child processes: the lifetime and peak memory of each."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.seen: dict[int, list[float]] = {}

    def __enter__(self) -> Children:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            for child in children_of(self._pid):
                now = time.monotonic()
                one = self.seen.setdefault(child, [now, now, 0.0])
                one[1] = now
                one[2] = max(one[2], peak_mib(child))

    def __str__(self) -> str:
        if not self.seen:
            return "none"
        longest = max(end - begin for begin, end, _ in self.seen.values())
        peak = max(peak for _, _, peak in self.seen.values())
        return f"{len(self.seen)}, longest {longest:.1f} s, {peak:.0f} MiB"


def commit_all(node: NodeProcess, num_groups: int, total: int) -> float:
    """Send `total` commits for `num_groups` groups, round by round; returns seconds to the last ack."""
    rounds = total // (num_groups * PARTITIONS)
    frames = (
        load.commit_frame(f"group-{group}", "orders", PARTITIONS, offset)
        for offset in range(1, rounds + 1)
        for group in range(num_groups)
    )
    with load.peers((node.host, node.port), CONNECTIONS) as opened:
        load.create_topic(opened[0], "orders", PARTITIONS)
        load.check_commit(opened[0], load.commit_frame("group-0", "orders", PARTITIONS, 0))
        reply_bytes = len(opened[0].exchange(load.commit_frame("group-0", "orders", PARTITIONS, 0)))
        start = time.perf_counter()
        _send_all(opened, frames, reply_bytes)
        return time.perf_counter() - start


def _send_all(opened: list[load.Peer], frames: Iterator[bytes], reply_bytes: int) -> None:
    """Keep a full window on every connection until the frames end; success replies have equal lengths."""
    waiting: dict[int, list[Any]] = {peer.socket.fileno(): [peer, 0] for peer in opened}
    for slot in waiting.values():
        slot[1] = sum(_send_next(slot[0], frames) for _ in range(IN_FLIGHT)) * reply_bytes
    while busy := [number for number, slot in waiting.items() if slot[1]]:
        for number in select.select(busy, [], [], load.REPLY_TIMEOUT_S)[0]:
            slot = waiting[number]
            data = slot[0].socket.recv(min(load.READ_BYTES, slot[1]))
            if not data:
                raise ConnectionError("the node closed the connection")
            before, slot[1] = slot[1], slot[1] - len(data)
            for _ in range(-(-before // reply_bytes) - -(-slot[1] // reply_bytes)):
                slot[1] += _send_next(slot[0], frames) * reply_bytes


def _send_next(peer: load.Peer, frames: Iterator[bytes]) -> int:
    frame = next(frames, None)
    if frame is None:
        return 0
    peer.socket.sendall(frame)
    return 1


# Measurements


def bench_empty(place: Path) -> None:
    node = launch_node(place)
    node.kill()
    report("process start to first join, empty node", str(timed_start(node)), "<= 0.8 s")
    resident = load.resident_bytes(node.pid) / MIB
    report("RSS, empty", f"{resident:.0f} MiB")
    with load.peers((node.host, node.port), MEMBERS) as opened:
        load.create_topic(opened[0], "orders", PARTITIONS)
        load.settled_members(opened, "fifty", ["orders"])
        resident = load.resident_bytes(node.pid) / MIB
    report(f"RSS with {MEMBERS} members", f"{resident:.0f} MiB", "<= 80 MB")
    node.kill()


def bench_commits(place: Path, num_groups: int, total: int, target: str) -> None:
    keys = num_groups * PARTITIONS
    what = f"{total:,} commits, {keys:,} keys"
    node = launch_node(place)
    with gaps.watching((node.host, node.port)) as gap, Children(node.pid) as children:
        seconds = commit_all(node, num_groups, total)
    report(f"{what}: written at", f"{total / seconds:,.0f}/s")
    report(f"{what}: snapshot children", str(children))
    report(f"{what}: longest wait for a heartbeat", f"{gap['longest_ms']} ms {gap['long'][:8]}", "< 50 ms")
    report(f"{what}: RSS", f"{load.resident_bytes(node.pid) / MIB:.0f} MiB")
    node.kill()
    start = timed_start(node)
    report(f"{what}: kill -9, start to first join", str(start), target)
    report(f"{what}: RSS after the restart", f"{load.resident_bytes(node.pid) / MIB:.0f} MiB")
    node.kill()


def bench_large_group(place: Path) -> None:
    """Joins, reads and scrapes with a group of 1,000 members on 10,000 partitions."""
    node = launch_node(place)
    address = (node.host, node.port)
    with load.peers(address, 1) as (peer,):
        load.create_topic(peer, "large", LARGE_PARTITIONS)
        members = [load.Member(peer, "large", f"member-{n:04}", ["large"]) for n in range(LARGE_MEMBERS + 3)]
        for member in members[:LARGE_MEMBERS]:
            member.beat()
        time.sleep(1.5)  # the pause after a large target
        for name, work in (
            ("one more member joins", lambda: [_join(member) for member in members[LARGE_MEMBERS:]]),
            ("GET /v1/groups/large", lambda: _get(node, "/v1/groups/large")),
            ("GET /metrics", lambda: _get(node, "/metrics")),
            ("ConsumerGroupDescribe", lambda: _describe(peer)),
        ):
            _with_gaps(address, f"{LARGE_MEMBERS:,} members x {LARGE_PARTITIONS:,} partitions, {name}", work)
    node.kill()


def _join(member: load.Member) -> None:
    member.beat()
    time.sleep(1.2)


def _get(node: NodeProcess, path: str) -> None:
    for _ in range(3):
        with urlopen(f"http://{node.host}:{node.http_port}{path}") as answer:
            answer.read()
        time.sleep(0.1)


def _describe(peer: load.Peer) -> None:
    from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest

    for _ in range(3):
        peer.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest(group_ids=["large"]))


def _with_gaps(address: tuple[str, int], what: str, work: Callable[[], Any]) -> None:
    with gaps.watching(address) as gap:
        work()
    report(f"{what}: longest wait", f"{gap['longest_ms']} ms", "< 50 ms")


BENCHES: dict[str, Callable[[Path], None]] = {
    "empty": bench_empty,
    "commits": lambda place: bench_commits(place, 1_000, COMMITS, "<= 2 s"),
    "tail": lambda place: bench_commits(place, 1_000, LONGEST_TAIL, "-"),
    "keys": lambda place: bench_commits(place, 10_000, COMMITS, "-"),
    "large": bench_large_group,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(BENCHES), help="one of the benchmarks (default: all)")
    options = parser.parse_args()
    for name in [options.only] if options.only else BENCHES:
        with tempfile.TemporaryDirectory(prefix="quorate-bench-") as directory:
            BENCHES[name](Path(directory) / "node")


if __name__ == "__main__":
    main()
