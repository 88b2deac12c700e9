"""`quorate cluster status|transfer|upgrade` against scripted nodes: output, requests and errors."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from quorate.app import run
from quorate.errors import ExitCode
from tests.quorate.standins import Answer, HttpNode


def refusal(error: str, leader: HttpNode | None = None) -> dict[str, Any]:
    body: dict[str, Any] = {"error": error, "message": f"it is {error}", "hint": "do otherwise"}
    if leader is not None:
        body["leader"] = {"node_id": 2, "http": leader.address}
    return body


def shard(number: int, state: str, leader_id: int | None, **log: Any) -> dict[str, Any]:
    name = "metadata" if number < 0 else f"shard-{number}"
    committed = log.pop("committed", 120)
    return {
        "shard": number,
        "name": name,
        "state": state,
        "leader_id": leader_id,
        "committed_index": committed,
        "log": {"term": 3, **log},
    }


def follower(node_id: int, lag: int | None = 0, **more: Any) -> dict[str, Any]:
    return {"node_id": node_id, "in_contact": True, "lag": lag, "mode": "replicating", **more}


def view(own: int, nodes: dict[int, HttpNode | None], shards: list[dict[str, Any]]) -> dict[str, Any]:
    """Return /v1/cluster of node `own`; None stands for a node without contact."""
    trouble = "node 3 has another secret: use one cluster.secret.file"
    return {
        "cluster_id": "test-cluster",
        "node_id": own,
        "format_level": 2,
        "uptime_ms": 250_000,
        "shards": shards,
        "nodes": [
            {
                "node_id": node_id,
                "is_self": node_id == own,
                "in_contact": node is not None,
                "kafka": {"host": "kafka", "port": 9090 + node_id} if node else None,
                "http": node.address if node else None,
                "release": "1.2.3" if node else None,
                "link": None if node_id == own else {"for_ms": 40_000, "trouble": None if node else trouble},
            }
            for node_id, node in nodes.items()
        ],
    }


def words(text: str) -> list[list[str]]:
    return [[word.strip() for word in line.split("  ") if word.strip()] for line in text.splitlines()]


def test_the_status_puts_the_views_of_all_nodes_together(
    start: Callable[[], HttpNode], capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = start(), start()
    nodes: dict[int, HttpNode | None] = {1: one, 2: two, 3: None}
    gone = follower(3, None, in_contact=False)
    one.script["/v1/cluster"] = [
        (200, view(1, nodes, [shard(-1, "Ready", 1, followers=[follower(2, 4), gone]), shard(0, "Down", 2)]))
    ]
    joining = follower(1, 900, mode="joining")
    two.script["/v1/cluster"] = [
        (200, view(2, nodes, [shard(-1, "Down", 1), shard(0, "CatchUp", 2, followers=[joining, gone])]))
    ]
    assert run(["cluster", "status", "--url", one.url]) == ExitCode.DEGRADED
    lines = words(capsys.readouterr().out)
    assert lines[1] == ["format level 2"]
    assert ["1", "kafka:9091", f"127.0.0.1:{one.port}", "1.2.3", "4 min 10 s", "this node"] in lines
    assert ["2", "kafka:9092", f"127.0.0.1:{two.port}", "1.2.3", "4 min 10 s", "up 40.0 s"] in lines
    assert ["3", "-", "-", "-", "-", "DOWN 40.0 s"] in lines
    assert ["metadata", "1", "3", "120", "leads, Ready", "lag 4", "gone"] in lines
    assert ["0", "2", "3", "120", "lag 900, joining", "leads, CatchUp", "gone"] in lines
    away = "node 3 is away: node 3 has another secret: use one cluster.secret.file"
    late = "shard 0 is not served yet: node 2 leads it and catches up"
    behind = "node 1 is 900 entries behind in shard 0 (joining)"
    assert lines[-2:] == [[], [f"degraded: {away}; {late}; {behind}"]], "each problem is told once"


def test_a_node_that_does_not_answer_is_shown_as_far_as_it_is_known(
    start: Callable[[], HttpNode], capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = start(), start()
    nodes: dict[int, HttpNode | None] = {1: one, 2: two}
    one.script["/v1/cluster"] = [(200, view(1, nodes, [shard(0, "Down", 2), shard(1, "Down", None)]))]
    two.script["/v1/cluster"] = [(503, refusal("BUSY"))]
    assert run(["cluster", "status", "--url", one.url]) == ExitCode.DEGRADED
    lines = words(capsys.readouterr().out)
    assert ["0", "2", "3", "120", "Down", "?"] in lines
    assert ["1", "none", "3", "120", "Down", "?"] in lines
    assert lines[-1] == ["degraded: node 2 does not respond to HTTP requests; shard 1 has no leader"]


def test_what_a_node_could_not_serve_is_shown(
    start: Callable[[], HttpNode], capsys: pytest.CaptureFixture[str]
) -> None:
    node = start()
    full = shard(0, "Ready", 1, cannot_serve="its disk is full: free some space")
    node.script["/v1/cluster"] = [(200, view(1, {1: node}, [full]))]
    assert run(["cluster", "status", "--url", node.url]) == ExitCode.DEGRADED
    shown = capsys.readouterr().out.splitlines()
    assert shown[-1] == "degraded: node 1 cannot serve shard 0: its disk is full: free some space"


@pytest.mark.parametrize(
    ("clock", "expected"),
    [
        ({"own_ahead_ms": 400, "not_believed_ms": 5_000}, ""),
        ({"own_ahead_ms": -7_200_000}, "the wall clock of node 1 is 2 h behind the cluster's time"),
        (
            {"own_ahead_ms": 3, "not_believed_ms": 8 * 86_400_000},
            "most clocks are 8 d ahead of the time that node 1 saw pass",
        ),
    ],
)
def test_wrong_clocks_are_shown(
    clock: dict[str, int], expected: str, start: Callable[[], HttpNode], capsys: pytest.CaptureFixture[str]
) -> None:
    node = start()
    document = view(1, {1: node}, [shard(0, "Ready", 1)]) | {"clock": clock}
    node.script["/v1/cluster"] = [(200, document)]
    code = ExitCode.DEGRADED if expected.startswith("the wall clock") else ExitCode.OK
    assert run(["cluster", "status", "--url", node.url]) == code
    shown = capsys.readouterr().out
    assert expected in shown
    assert ("clock" in shown) == bool(expected)


def test_a_node_alone_is_shown_without_links(
    start: Callable[[], HttpNode], capsys: pytest.CaptureFixture[str]
) -> None:
    node = start()
    node.script["/v1/cluster"] = [(200, view(1, {1: node}, [shard(0, "Ready", 1)]))]
    assert run(["cluster", "status", "--url", node.url]) == 0
    lines = words(capsys.readouterr().out)
    assert lines[-3] == ["0", "1", "3", "120", "leads, Ready"]
    assert lines[-1] == ["all well: the node is up, and every shard is served"]


def test_the_status_as_json_has_the_views_of_the_others(
    start: Callable[[], HttpNode], capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = start(), start()
    nodes: dict[int, HttpNode | None] = {1: one, 2: two}
    for own, node in ((1, one), (2, two)):
        node.script["/v1/cluster"] = [(200, view(own, nodes, [shard(0, "Ready", own)]))]
    assert run(["cluster", "status", "--json", "--url", one.url + "/"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["node_id"], document["views"]["2"]["node_id"]) == (1, 2)
    sentence = "all well: all 2 nodes are up, and every shard is served"
    expected = {"state": "ALL_WELL", "sentence": sentence, "problems": [], "exit_code": 0}
    assert document["verdict"] == expected


def _no_majority(start: Callable[[], HttpNode]) -> HttpNode:
    """Start node 1 of three, which reaches no other."""
    node = start()
    alone = view(1, {1: node, 2: None, 3: None}, [shard(-1, "Down", None), shard(0, "Down", None)])
    node.script["/v1/cluster"] = [(200, alone)]
    return node


def test_a_node_alone_of_three_has_no_majority(
    start: Callable[[], HttpNode], capsys: pytest.CaptureFixture[str]
) -> None:
    node = _no_majority(start)
    assert run(["cluster", "status", "--json", "--url", node.url]) == ExitCode.NO_MAJORITY
    verdict = json.loads(capsys.readouterr().out)["verdict"]
    assert (verdict["state"], verdict["exit_code"]) == ("NO_MAJORITY", ExitCode.NO_MAJORITY)
    assert verdict["sentence"] == "no majority: of 3 nodes only node 1 is up, so no shard can be served"
    assert verdict["problems"][-2:] == ["the metadata shard has no leader", "shard 0 has no leader"]


def test_a_node_that_is_cut_off_does_not_hide_the_others(
    start: Callable[[], HttpNode], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is in contact with none of them, but their addresses were given."""
    one, two, three = _no_majority(start), start(), start()
    nodes: dict[int, HttpNode | None] = {1: None, 2: two, 3: three}
    for own, node, followers in ((2, two, [follower(1, 0, in_contact=False), follower(3)]), (3, three, [])):
        shards = [
            shard(number, "Ready" if own == 2 else "Down", 2, followers=followers) for number in (-1, 0)
        ]
        node.script["/v1/cluster"] = [(200, view(own, nodes, shards))]
    urls = ",".join([one.url, two.url, three.url])
    assert run(["cluster", "status", "--url", urls]) == ExitCode.DEGRADED
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("degraded: node 1 has no link to node 2: node 3 has another secret")
    assert last.endswith("; and 1 more")
    assert run(["cluster", "status", "--url", f"{one.url},{two.url}"]) == ExitCode.DEGRADED


def test_a_busy_node_is_passed_over(
    start: Callable[[], HttpNode], capsys: pytest.CaptureFixture[str]
) -> None:
    busy, node = start(), start()
    busy.script["/v1/cluster"] = [(503, refusal("BUSY"))]
    node.script["/v1/cluster"] = [(200, view(1, {1: node}, [shard(0, "Ready", 1)]))]
    assert run(["cluster", "status", "--url", f"{busy.url},{node.url}"]) == 0
    node.script["/v1/cluster"] = [(200, {"status": "ok"})]
    assert run(["cluster", "status", "--url", node.url]) == ExitCode.REFUSED
    assert "does not respond like a Quorate node" in capsys.readouterr().err


def test_any_of_several_addresses_will_do(
    start: Callable[[], HttpNode], capsys: pytest.CaptureFixture[str]
) -> None:
    gone, there = start(), start()
    gone.close()
    there.script["/v1/cluster"] = [(200, view(1, {1: there}, [shard(0, "Ready", 1)]))]
    assert run(["cluster", "status", "--url", f"{gone.url}, {there.url}"]) == 0
    assert run(["cluster", "status", "--url", gone.url]) == ExitCode.UNREACHABLE
    assert gone.url in capsys.readouterr().err


def test_a_node_that_stands_still_does_not_use_up_the_time_of_the_others(
    start: Callable[[], HttpNode], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("quorate.http_client.OTHERS_TIMEOUT_S", 0.5)  # time enough for a busy machine
    node = start()
    node.script["/v1/cluster/upgrade"] = [(200, {"format_level": 1})]
    with socket.create_server(("127.0.0.1", 0)) as still:
        silent = f"http://127.0.0.1:{still.getsockname()[1]}"
        began_s = time.monotonic()
        assert run(["cluster", "upgrade", "--url", f"{silent},{node.url}"]) == 0
        assert time.monotonic() - began_s < 5.0
        assert run(["cluster", "status", "--url", f"{silent},{silent}"]) == ExitCode.UNREACHABLE
    assert f"none of {silent}, {silent} responds" in capsys.readouterr().err


def test_a_transfer_follows_to_the_leader(
    start: Callable[[], HttpNode], capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = start(), start()
    one.script["/v1/shards/2/transfer"] = [(409, refusal("NOT_LEADER", two))]
    answer = {"shard": 2, "was_leader": 2, "leader_id": 3, "lasts": True}
    two.script["/v1/shards/2/transfer"] = [(200, answer)]
    assert run(["cluster", "transfer", "2", "--to", "3", "--url", one.url]) == 0
    lasts = "this lasts until `quorate cluster transfer 2 --undo` or another transfer"
    assert capsys.readouterr().out.splitlines() == ["node 3 leads shard 2 now; node 2 did", lasts]
    assert two.asked == [("POST", "/v1/shards/2/transfer", '{"to": 3}')]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            {"was_leader": 1, "leader_id": 1, "lasts": True},
            "node 1 already leads the metadata shard\nthis lasts",
        ),
        ({"was_leader": 1, "leader_id": 2, "lasts": False}, "node 1 did\nbalancing will take the shard back"),
        (
            {"was_leader": None, "leader_id": 2, "lasts": True},
            "node 2 leads the metadata shard now; it had no",
        ),
        (
            {"was_leader": 1, "leader_id": None, "lasts": False},
            "node 1 transferred the metadata shard; its new",
        ),
    ],
)
def test_other_ends_of_a_transfer(
    start: Callable[[], HttpNode], capsys: pytest.CaptureFixture[str], answer: dict[str, Any], says: str
) -> None:
    node = start()
    answer = {"shard": -1, **answer}
    node.script["/v1/shards/metadata/transfer"] = [(200, answer)]
    assert run(["cluster", "transfer", "metadata", "--url", node.url]) == 0
    assert says in capsys.readouterr().out
    assert run(["cluster", "transfer", "metadata", "--json", "--url", node.url]) == 0
    assert json.loads(capsys.readouterr().out) == answer
    assert node.asked[0][2] == "{}"


def test_a_transfer_is_undone_with_delete(
    start: Callable[[], HttpNode], capsys: pytest.CaptureFixture[str]
) -> None:
    node = start()
    path = "/v1/shards/0/transfer"
    node.script[path] = [(200, {"shard": 0, "was_asked": 3}), (200, {"shard": 0, "was_asked": None})]
    for words_of in ("node 3 was asked for", "no transfer of it was in force"):
        assert run(["cluster", "transfer", "0", "--undo", "--url", node.url]) == 0
        assert capsys.readouterr().out == f"balancing chooses the leader of shard 0 again; {words_of}\n"
    assert node.asked[0] == ("DELETE", path, "")
    assert run(["cluster", "transfer", "0", "--undo", "--to", "3", "--url", node.url]) == ExitCode.USAGE


def test_a_refusal_is_told_in_the_nodes_words(
    start: Callable[[], HttpNode], capsys: pytest.CaptureFixture[str]
) -> None:
    node = start()
    node.script["/v1/shards/9/transfer"] = [(404, refusal("NO_SUCH_SHARD"))]
    assert run(["cluster", "transfer", "9", "--url", node.url]) == ExitCode.REFUSED
    assert capsys.readouterr().err == "quorate: error: it is NO_SUCH_SHARD; do otherwise\n"


def drained(own: int, nodes: dict[int, HttpNode | None], shards: list[dict[str, Any]], *ids: int) -> Answer:
    """Answer with the view of node `own` in which the nodes `ids` are drained."""
    document = view(own, nodes, shards)
    for node in document["nodes"]:
        node["drained"] = node["node_id"] in ids
    return 200, document


def test_a_drain_waits_until_the_node_leads_nothing(
    start: Callable[[], HttpNode], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quorate.commands.draining.POLL_S", 0.01)
    one, two, three = start(), start(), start()
    nodes: dict[int, HttpNode | None] = {1: one, 2: two, 3: three}
    one.script["/v1/nodes/3/drain"] = [(200, {"node_id": 3, "drained": True})]
    for own, node in ((1, one), (2, two), (3, three)):
        states = {3: "Ready" if own == 3 else "Down", 2: "CatchUp" if own == 2 else "Down", 1: "Down"}
        led_by = [drained(own, nodes, [shard(0, states[leader], leader)], 3) for leader in (3, 2)]
        settled = shard(0, "Ready" if own == 2 else "Down", 2) | {"asked_leader": 3}
        node.script["/v1/cluster"] = [*led_by, drained(own, nodes, [settled], 3)]
    assert run(["cluster", "drain", "3", "--json", "--url", one.url]) == 0
    document = json.loads(capsys.readouterr().out)
    may = "node 3 leads nothing and may be stopped; it will lead nothing until `quorate cluster undrain 3`"
    assert document == {"node_id": 3, "drained": True, "may_stop": True, "sentence": may}
    assert len(one.asked) == 4
    assert run(["cluster", "status", "--url", one.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-4:-2] == [
        "node 3 is drained: it leads nothing until `quorate cluster undrain 3`",
        "node 3 shall lead shard 0 by request, until `quorate cluster transfer 0 --undo`",
    ]
    one.script["/v1/nodes/3/drain"] = [(200, {"node_id": 3, "drained": False})]
    assert run(["cluster", "undrain", "3", "--url", one.url]) == 0
    assert one.asked[-1] == ("DELETE", "/v1/nodes/3/drain", "")
    assert capsys.readouterr().out.startswith("node 3 may lead shards: balancing"), "drained before or not"


def test_a_drain_that_ends_without_an_empty_node_says_why(
    start: Callable[[], HttpNode], capsys: pytest.CaptureFixture[str]
) -> None:
    one, three = start(), start()
    nodes: dict[int, HttpNode | None] = {1: one, 2: None, 3: three}
    one.script["/v1/nodes/3/drain"] = [(200, {"node_id": 3, "drained": True})]
    gone = follower(2, None, in_contact=False)
    for own, node in ((1, one), (3, three)):
        followers = [follower(1, is_drained=True), gone] if own == 3 else []
        leading = shard(0, "Ready" if own == 3 else "Down", 3, followers=followers)
        node.script["/v1/cluster"] = [drained(own, nodes, [leading], 1, 3)]
    assert run(["cluster", "drain", "3", "--timeout", "0.2", "--url", one.url]) == ExitCode.DEGRADED
    reasons = "it leads shard 0 (node 1 is drained too, node 2 is not connected)"
    said = capsys.readouterr().err
    assert f"node 3 is drained, but may not be stopped yet: {reasons}; " in said
    assert "`quorate cluster undrain 3` withdraws the request" in said


def test_a_drained_node_that_the_majority_needs_may_not_be_stopped(
    start: Callable[[], HttpNode], capsys: pytest.CaptureFixture[str]
) -> None:
    one, three = start(), start()
    nodes: dict[int, HttpNode | None] = {1: one, 2: None, 3: three}
    one.script["/v1/nodes/3/drain"] = [(200, {"node_id": 3, "drained": True})]
    for own, node in ((1, one), (3, three)):
        node.script["/v1/cluster"] = [drained(own, nodes, [shard(0, "Ready" if own == 1 else "Down", 1)], 3)]
    assert run(["cluster", "drain", "3", "--url", one.url]) == ExitCode.DEGRADED
    assert "without it there is no majority: do not stop it" in capsys.readouterr().err


def test_a_change_waits_for_a_leader(
    start: Callable[[], HttpNode], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quorate.commands.cluster.PAUSE_S", 0.01)
    node = start()
    no_leader = (503, refusal("NO_LEADER"))
    node.script["/v1/cluster/upgrade"] = [no_leader, no_leader, (200, {"format_level": 2})]
    assert run(["cluster", "upgrade", "--url", node.url]) == 0
    assert capsys.readouterr().out == "the cluster writes format level 2\n"
    node.script["/v1/cluster/upgrade"] = [no_leader]
    assert run(["cluster", "upgrade", "--timeout", "2", "--url", node.url]) == ExitCode.REFUSED
    assert "it is NO_LEADER; do otherwise" in capsys.readouterr().err


def test_two_nodes_that_name_each_other_are_not_followed_for_ever(
    start: Callable[[], HttpNode], capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = start(), start()
    one.script["/v1/cluster/upgrade"] = [(409, refusal("NOT_LEADER", two))]
    two.script["/v1/cluster/upgrade"] = [(409, refusal("NOT_LEADER", one))]
    assert run(["cluster", "upgrade", "--url", one.url]) == ExitCode.REFUSED
    assert len(one.asked) + len(two.asked) == 5


@pytest.mark.parametrize(
    "answer",
    [
        (409, refusal("NOT_TRANSFERRED")),
        (409, {**refusal("NOT_LEADER"), "leader": {"node_id": 2, "http": None}}),
        (409, {**refusal("NOT_LEADER"), "leader": "node 2"}),
        (400, refusal("NO_SUCH_NODE")),
        (200, b"<html>"),
        (500, b"[]"),
    ],
    ids=str,
)
def test_refusals_of_a_change_are_one_line(
    start: Callable[[], HttpNode], capsys: pytest.CaptureFixture[str], answer: Answer
) -> None:
    node = start()
    node.script["/v1/shards/0/transfer"] = [answer]
    assert run(["cluster", "transfer", "0", "--url", node.url]) == ExitCode.REFUSED
    captured = capsys.readouterr()
    assert (captured.out, len(captured.err.splitlines())) == ("", 1)


def test_a_shard_is_named_in_the_path_as_it_is(start: Callable[[], HttpNode]) -> None:
    node = start()
    assert run(["cluster", "transfer", "../x?y", "--url", node.url]) == ExitCode.REFUSED
    assert node.asked[0][1] == "/v1/shards/..%2Fx%3Fy/transfer"


def test_the_port_for_kafka_clients_is_suspected_where_no_http_answers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as kafka, ThreadPoolExecutor(1) as pool:
        closing = pool.submit(hang_up, kafka)
        url = f"http://127.0.0.1:{kafka.getsockname()[1]}"
        assert run(["cluster", "status", "--url", url]) == ExitCode.UNREACHABLE
        closing.result()
    assert "is it the port for Kafka clients? --url takes the HTTP address" in capsys.readouterr().err


def hang_up(server: socket.socket) -> None:
    """Read a request and close, as a node does whose Kafka port gets something else."""
    connection, _ = server.accept()
    with connection:
        connection.recv(10_000)
