"""Every `quorate log` command about a real incident: three nodes, the leader killed, a consumer killed.

The test knows the truth, as it caused it: which node was killed, which one took over, which consumer
vanished. Each command runs on the directories and against the running cluster, as text and as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import aiokafka
import pytest
from confluent_kafka.admin import AdminClient

from cluster.launching.launcher import ClusterProcess, NodeProcess
from quorate.app import run
from quorate.client import Client
from quorate.commands.log import app
from tests.report import count_fault
from tests.support.polled_consumers import WAIT_S, Crowd

ROOT = Path(__file__).parent.parent.parent
GROUP, TOPIC, NUM_PARTITIONS = "billing", "orders", 6  # those of examples/consumer.py
AIO_GROUP = "reports"
SETTINGS = {
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.heartbeat.interval.ms": "500",
    "cluster.shards": "1",
}


@dataclass(frozen=True)
class Incident:
    """The facts of the incident, for `str.format`."""

    data: Path
    urls: str
    killed: int
    heir: int
    dead: str
    """Member id of the consumer that was killed."""
    before: str
    after: str
    """Moments before and after the death of the leader."""


@pytest.fixture(scope="module")
def incident(cluster: ClusterProcess) -> Iterator[Incident]:
    with Client(cluster.bootstrap) as client:
        client.create_topic(TOPIC, NUM_PARTITIONS)
    crowd = Crowd(cluster.bootstrap, GROUP, TOPIC)
    try:
        yield _provoke(cluster, crowd)
    finally:
        crowd.close()


def _provoke(cluster: ClusterProcess, crowd: Crowd) -> Incident:
    first = crowd.join(**{"client.id": "app-1"})
    crowd.wait_balanced(NUM_PARTITIONS)  # otherwise either of the two may have caused epoch 1
    crowd.join(**{"client.id": "app-2"})
    crowd.wait_balanced(NUM_PARTITIONS)
    leader = _leader(cluster)
    before = _now()
    leader.kill()
    count_fault("clients", "kill -9 of the leader under questions to its log")
    crowd.wait("a commit at the new leader", lambda: _commits(crowd, 17))
    after = _now()
    heir = _leader(cluster)

    with _doomed_consumer(cluster.bootstrap) as doomed:
        crowd.wait("a share for the third", lambda: sum(len(one.owned) for one in crowd.members) == 4)
        dead = _member_named(cluster, "doomed")
        doomed.kill()
    count_fault("clients", "kill -9 of a consumer under questions to its log")
    crowd.wait_balanced(NUM_PARTITIONS)  # one session timeout later
    with Client(cluster.bootstrap) as client:
        client.grow_topic(TOPIC, NUM_PARTITIONS + 2)
    crowd.wait_balanced(NUM_PARTITIONS + 2)
    asyncio.run(_aiokafka_commits(cluster.bootstrap))
    leader.start()
    first.commit({min(first.owned): 99})
    return Incident(
        data=cluster.data,
        urls=",".join(node.url for node in cluster.nodes),
        killed=leader.node_id,
        heir=heir.node_id,
        dead=dead,
        before=before,
        after=after,
    )


def _now() -> str:
    return datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]


def _described(cluster: ClusterProcess) -> object:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    return admin.describe_consumer_groups([GROUP])[GROUP].result(WAIT_S)


def _leader(cluster: ClusterProcess) -> NodeProcess:
    node_id = _described(cluster).coordinator.id  # type: ignore[attr-defined]
    return next(node for node in cluster.nodes if node.node_id == node_id)


def _member_named(cluster: ClusterProcess, client_id: str) -> str:
    members = _described(cluster).members  # type: ignore[attr-defined]
    return next(str(one.member_id) for one in members if one.client_id == client_id)


def _commits(crowd: Crowd, offset: int) -> bool:
    """Let every member commit all that it owns; False while there is no leader."""
    try:
        for member in crowd.members:
            member.commit(dict.fromkeys(member.owned, offset))
    except Exception:
        return False
    return True


@contextmanager
def _doomed_consumer(bootstrap: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, str(ROOT / "examples" / "consumer.py"), bootstrap, "consumer"]
    env = {**os.environ, "CLIENT_ID": "doomed"}
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


async def _aiokafka_commits(bootstrap: str) -> None:
    """Commit for a group without members, which has a history of its own."""
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=AIO_GROUP, enable_auto_commit=False
    )
    await consumer.start()
    try:
        part = aiokafka.TopicPartition(TOPIC, 0)
        consumer.assign([part])
        await consumer.commit({part: 5})
    finally:
        await consumer.stop()


LIVE_TOO = [
    ("explain {group}", ["node {heir} took over from node {killed}", "client doomed", "expired", "grew"]),
    ("explain {group} --epoch 1", ["epoch 0 -> 1", "client app-1"]),
    ("explain {group} --member {dead}", ["client doomed", "expired"]),
    ("explain {group} --member app-2", ["client app-2"]),
    ("explain {group} --partition orders-0", ["orders"]),
    ("explain {group} --at {after}", ["node {heir} took over from node {killed}"]),
    ("explain {group} --since {before} --until {after}", ["node {heir} took over from node {killed}"]),
    ("timeline {group}", ["node {heir} took over from node {killed}", "client doomed"]),
    ("timeline {group} --lanes", ["doomed", "expired", "node {heir}"]),
    ("findings", ["{group}", "FAILOVER", "node {heir} took over", "from node {killed}"]),
    ("findings {group}", ["SESSION_EXPIRED", "doomed"]),
    ("owner orders-0", ["Group {group}", "owned it", "was committed by"]),
    ("owner orders-0 --at {after}", ["owned it"]),
    ("diff --since {before}", ["group {group}", "topic orders grew from 6 to 8 partitions"]),
    ("stats", ["{group}", "session"]),
    ("whatif {group} --assignor range", ["what if assignor range", "epochs"]),
    ("whatif --session-timeout 2s", ["{group}"]),
    ("replay --group {group} --at {after}", ["group {group} (consumer)", "client app-1"]),
    ("replay", ["group {group} (consumer)", "group {aio_group}", "orders: 8 partitions"]),
    ("terms", ["node {heir} took over from node {killed}"]),
    ("dump --group {group} --type offset_commit", ["offset=17", "offset=99"]),
]
FILES_ONLY = [
    ("verify", ["verified: everything holds"]),
    ("compare", ["compared: identical on all nodes"]),
]
LINES = ("dump",)
"""Commands that print one JSON object per line."""


@pytest.mark.parametrize("is_live", [False, True], ids=["files", "url"])
@pytest.mark.parametrize(("question", "truth"), LIVE_TOO, ids=[question for question, _ in LIVE_TOO])
def test_each_command_tells_what_happened(
    incident: Incident, capsys: pytest.CaptureFixture[str], question: str, truth: list[str], is_live: bool
) -> None:
    where = ["--url", incident.urls] if is_live else [str(incident.data)]
    _ask(incident, capsys, question, truth, where)


@pytest.mark.parametrize(("question", "truth"), FILES_ONLY)
def test_the_bytes_of_running_nodes_are_checked(
    incident: Incident, capsys: pytest.CaptureFixture[str], question: str, truth: list[str]
) -> None:
    where = [str(incident.data)]
    if question == "verify":
        where = [str(incident.data / f"node-{incident.heir}")]
    _ask(incident, capsys, question, truth, where)
    assert run(["log", question, incident.urls.split(",")[0]]) == 2
    assert "reads files" in capsys.readouterr().err


def _ask(
    incident: Incident,
    capsys: pytest.CaptureFixture[str],
    question: str,
    truth: list[str],
    where: list[str],
) -> None:
    known = {"group": GROUP, "aio_group": AIO_GROUP, **vars(incident)}
    name, *words = (word.format(**known) for word in question.split())
    times = [] if name in ("verify", "compare", "whatif") else ["--utc"]
    arguments = ["log", name, *where, *words, *times]
    text = _said(arguments, capsys)
    for part in truth:
        assert part.format(**known) in text, text
    if "--lanes" in words:
        return
    said = _said([*arguments, "--json"], capsys)
    for document in said.splitlines() if name in LINES else [said]:
        assert json.loads(document)


def _said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    code = run(arguments)
    captured = capsys.readouterr()
    assert code == 0, (arguments, captured.err)
    assert "Traceback" not in captured.out + captured.err
    assert captured.err == ""
    return captured.out


def test_a_page_of_it_can_be_written(
    incident: Incident, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "billing.html"
    arguments = ["log", "timeline", str(incident.data), GROUP, "--html", str(page)]
    assert f"wrote {page}" in _said(arguments, capsys)
    assert incident.dead in page.read_text(encoding="utf-8")
    assert run(arguments) == 2  # it is there
    assert "--force" in capsys.readouterr().err
    _said([*arguments, "--force"], capsys)


@pytest.mark.parametrize("is_live", [False, True], ids=["files", "url"])
def test_tables_of_it_can_be_written(
    incident: Incident, tmp_path: Path, capsys: pytest.CaptureFixture[str], is_live: bool
) -> None:
    where = ["--url", incident.urls] if is_live else [str(incident.data)]
    _said(["log", "export", *where, "--format", "jsonl", "--output", str(tmp_path)], capsys)
    rows = {
        path.stem: [json.loads(line) for line in path.read_text().splitlines()] for path in tmp_path.iterdir()
    }
    assert all(rows.values()), {name: len(of) for name, of in rows.items()}
    ends = {row["member_id"]: row["end"] for row in rows["member_sessions"]}
    assert ends[incident.dead] == "session expired"
    assert {(row["node_id"], row["previous_leader"]) for row in rows["failovers"] if row["is_takeover"]} >= {
        (incident.heir, incident.killed)
    }
    assert {17, 99} <= {row["offset"] for row in rows["commits"] if row["group_id"] == GROUP}


def test_the_segments_of_a_running_node_are_shown(
    incident: Incident, capsys: pytest.CaptureFixture[str]
) -> None:
    home = incident.data / f"node-{incident.heir}"
    assert run(["log", "archive", str(home), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert len(shown["shards"]) >= 2


def test_every_command_is_asked() -> None:
    asked = {"archive", "export"} | {question.split()[0] for question, _ in [*LIVE_TOO, *FILES_ONLY]}
    assert asked == {command.name for command in app.registered_commands}
