"""Regular expressions: `python -m benchmarks.regex_bench [--expressions N] [--topics N] [--rounds N]`.

One group has a member for each expression, half of them prefixes and half suffixes, matching ten topics each;
the refresh interval is at its minimum, so that all expressions are resolved again every ten seconds. Another
process sends steady heartbeats of a member of another group, one after another. Its waits during a round are
compared with its waits between rounds, in the same run: the ratio counts, as the machine may be doing other
things.

Rounds are observed from outside, by the node's child processes; the node's own work before the child starts
and after it ends belongs to the round. Looking for a child takes half a millisecond of a core, of which there
may be two, so nothing looks while waits are measured: neither in a round, whose end the system reports, nor
between rounds until the next one is near.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from pathlib import Path

from benchmarks import load
from benchmarks.figures import percentile, report
from cluster.launching.launcher import NodeProcess, launch_node
from wire.apis import ApiKey
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

SETTINGS = {
    "group.consumer.regex.refresh.interval.ms": "10000",
    "group.consumer.session.timeout.ms": "1800000",
}
INTERVAL_S = 10.0
GROUP = "by-regex"
TOPICS_PER_REQUEST = 500
REST_S = 0.001
LOOK_S = 0.004
"""Seconds between two looks for a child."""

BEFORE_S, AFTER_S = 0.015, 0.12
"""Seconds of a round before and after its child: the request is made, the answer is applied."""

CALM_S = 8.0
"""Seconds after a round in which nothing looks for the next one."""

RESOLVE_S = 120.0
CHILD = b"cluster.children.resolve"


def probe(host: str, port: int) -> None:
    """Send steady heartbeats until standard input is closed; prints when each began, and its wait in ms."""
    with load.peers((host, port), 1) as opened:
        load.create_topic(opened[0], "probe", 1)
        frame = load.settled_members(opened, "probe", ["probe"])[0].steady_frame()
        print("ready", flush=True)
        os.set_blocking(sys.stdin.fileno(), False)
        beats: list[tuple[float, float]] = []
        while sys.stdin.buffer.raw.read(1) is None:  # type: ignore[attr-defined]  # b"" at its end
            begin_s = time.perf_counter()
            opened[0].exchange(frame)
            beats.append((begin_s, (time.perf_counter() - begin_s) * 1000))
            time.sleep(REST_S)
    print(json.dumps(beats))


def create_topics(peer: load.Peer, names: list[str]) -> None:
    for start in range(0, len(names), TOPICS_PER_REQUEST):
        topics = [
            CreatableTopic(name=name, num_partitions=1, replication_factor=-1)
            for name in names[start : start + TOPICS_PER_REQUEST]
        ]
        answer = peer.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics, timeout_ms=30_000))
        if any(topic.error_code for topic in answer.topics):
            raise RuntimeError("topics were not created")


def join(peer: load.Peer, member_id: str, regex: str) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=1_800_000,
        subscribed_topic_names=[],
        subscribed_topic_regex=regex,
        topic_partitions=[],
    )
    answer = peer.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, load.HEARTBEAT_VERSION, request)
    if answer.error_code:
        raise RuntimeError(f"join failed: error {answer.error_code} {answer.error_message}")


def resolving(pid: int) -> int | None:
    """The child process that resolves expressions for this node."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            for child in (task / "children").read_text().split():
                if CHILD in Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
        except OSError:  # it has ended
            continue
    return None


def wait_for_end(pid: int) -> None:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        select.select([fd], [], [])
    finally:
        os.close(fd)


def watch_rounds(node: NodeProcess, rounds: int) -> list[tuple[float, float]]:
    """Begin and end times of each of the next rounds."""
    seen: list[tuple[float, float]] = []
    deadline_s = time.perf_counter() + RESOLVE_S + rounds * INTERVAL_S
    while len(seen) < rounds:
        while (child := resolving(node.pid)) is None:
            time.sleep(LOOK_S)
            if time.perf_counter() > deadline_s:
                raise RuntimeError(f"only {len(seen)} rounds were seen")
        begin_s = time.perf_counter()
        wait_for_end(child)
        seen.append((begin_s, time.perf_counter()))
        time.sleep(CALM_S)
    return seen


def within(
    beats: list[tuple[float, float]], spans: list[tuple[float, float]]
) -> tuple[list[float], list[float]]:
    """Waits of the heartbeats that began during rounds, and of those that began in the calm after."""
    begins = [begin_s - BEFORE_S for begin_s, _ in spans]
    inside: list[float] = []
    outside: list[float] = []
    for at_s, took_ms in beats:
        if at_s < begins[0]:
            continue
        end_s = spans[bisect_right(begins, at_s) - 1][1]
        if at_s <= end_s + AFTER_S:
            inside.append(took_ms)
        elif at_s <= end_s + CALM_S:
            outside.append(took_ms)
    return inside, outside


def bench(expressions: int, topics: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as directory:
        node = launch_node(Path(directory) / "node", settings=SETTINGS)
        try:
            with load.peers((node.host, node.port), 1) as opened:
                (peer,) = opened
                create_topics(
                    peer,
                    [
                        f"svc{number % expressions}-{number}-x{number % expressions}"
                        for number in range(topics)
                    ],
                )
                begin_s = time.perf_counter()
                for number in range(expressions):
                    regex = f"svc{number}-.*" if number % 2 else f".*-x{number}"
                    join(peer, f"member-{number:05}", regex)
                report(
                    f"{expressions} members with an expression each join, one after another",
                    f"{time.perf_counter() - begin_s:.1f} s",
                )
                command = [
                    sys.executable,
                    "-m",
                    "benchmarks.regex_bench",
                    "--probe",
                    node.host,
                    str(node.port),
                ]
                with subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                ) as child:
                    assert child.stdin is not None
                    assert child.stdout is not None
                    if child.stdout.readline() != "ready\n":
                        raise RuntimeError("the probe could not join")
                    watch_rounds(node, 2)  # rounds that the joins started are over
                    spans = watch_rounds(node, rounds)
                    child.stdin.close()
                    beats = json.loads(child.stdout.readline())
        finally:
            node.kill()
    inside, outside = within(beats, spans)
    took_s = [end_s - begin_s for begin_s, end_s in spans]
    what = f"{expressions} expressions over {topics} topics"
    report(
        f"{what}, resolved by a child process",
        f"p50 {statistics.median(took_s):.2f} s, max {max(took_s):.2f} s",
    )
    idle_ms, busy_ms = percentile(outside, 0.99), percentile(inside, 0.99)
    report(
        f"heartbeat of another group meanwhile ({len(inside)}), p50", f"{statistics.median(inside):.2f} ms"
    )
    report("    the same, p99", f"{busy_ms:.2f} ms")
    report("    the same, longest", f"{max(inside):.2f} ms")
    report(
        f"heartbeat while nothing is resolved ({len(outside)}), p50", f"{statistics.median(outside):.2f} ms"
    )
    report("    the same, p99", f"{idle_ms:.2f} ms")
    report("ratio of the two p99", f"{busy_ms / idle_ms:.2f}", "<= 2")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--expressions", type=int, default=1_000)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--probe", nargs=2, metavar=("HOST", "PORT"))
    options = parser.parse_args()
    if options.probe:
        probe(options.probe[0], int(options.probe[1]))
    else:
        bench(options.expressions, options.topics, options.rounds)


if __name__ == "__main__":
    main()
