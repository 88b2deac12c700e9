"""`quorate faults add|list|clear` against scripted nodes: requests, output and errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from quorate.app import run
from quorate.errors import ExitCode
from tests.quorate.standins import HttpNode


def fault(fault_id: int = 1, **more: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("api", "group", "member", "client_id", "connection", "error", "times", "for_ms"))
    words = {"action": "drop", "words": "carry requests out", "rate": 1.0, "seed": 0, "has_ended": False}
    counts = dict.fromkeys(("delay_ms", "throttle_ms", "after", "matched", "applied"), 0)
    return {"id": fault_id, **nothing, **words, **counts, "left_ms": None, **more}


def cluster(nodes: dict[int, HttpNode | None]) -> dict[str, Any]:
    """Return /v1/cluster of the first node; None stands for a node without contact."""
    return {
        "node_id": 1,
        "nodes": [
            {
                "node_id": node_id,
                "is_self": node_id == 1,
                "in_contact": node is not None,
                "http": node.address if node else None,
            }
            for node_id, node in nodes.items()
        ],
    }


def state(*faults: dict[str, Any], next_id: int = 1, enabled: bool = True) -> dict[str, Any]:
    return {"enabled": enabled, "next_id": next_id, "faults": list(faults)}


@pytest.fixture
def two(start: Callable[[], HttpNode]) -> tuple[HttpNode, HttpNode]:
    """Two nodes of three; the third is down."""
    one, other = start(), start()
    one.script["/v1/cluster"] = [(200, cluster({1: one, 2: other, 3: None}))]
    return one, other


def sent(node: HttpNode, method: str) -> list[Any]:
    return [json.loads(body) if body else path for verb, path, body in node.asked if verb == method]


def test_a_fault_is_set_on_every_node_under_one_id(
    two: tuple[HttpNode, HttpNode], capsys: pytest.CaptureFixture[str]
) -> None:
    made = fault(
        5, words="answer STALE_MEMBER_EPOCH", api="OffsetCommit", group="billing", times=2, for_ms=10_000
    )
    two[0].script["/v1/faults"] = [(200, state(next_id=2)), (200, made)]
    two[1].script["/v1/faults"] = [(200, state(next_id=5)), (200, made)]
    words = ["error", "STALE_MEMBER_EPOCH", "--api", "OffsetCommit", "--group", "billing", "--times", "2"]
    assert run(["faults", "add", *words, "--for", "10s", "--url", two[0].url]) == 0
    often = "at most 2 times on each node, for 10.0 s"
    assert capsys.readouterr().out.splitlines() == [
        f"fault 5 on nodes 1, 2: answer STALE_MEMBER_EPOCH: OffsetCommit, group billing, {often}",
        "node 3 could not be asked; a node that restarts has no faults",
    ]
    body = {"action": "error", "error": "STALE_MEMBER_EPOCH", "api": "OffsetCommit", "group": "billing"}
    for node in two:
        assert sent(node, "POST") == [body | {"times": 2, "for_ms": 10_000, "id": 5}]


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (["delay", "500ms"], {"action": "delay", "delay_ms": 500}),
        (
            ["throttle", "5s", "--delay", "1s"],
            {"action": "throttle", "throttle_ms": 5_000, "delay_ms": 1_000},
        ),
        (["drop", "--after", "3", "--member", "m"], {"action": "drop", "after": 3, "member": "m"}),
        (["close", "--rate", "0.2", "--seed", "7"], {"action": "close", "rate": 0.2, "seed": 7}),
        (
            ["silence", "--client-id", "c", "--connection", "10.0.0.1:5"],
            {"action": "silence", "client_id": "c", "connection": "10.0.0.1:5"},
        ),
    ],
)
def test_every_option_reaches_the_node(
    words: list[str],
    body: dict[str, Any],
    start: Callable[[], HttpNode],
    capsys: pytest.CaptureFixture[str],
) -> None:
    node = start()
    node.script["/v1/cluster"] = [(200, cluster({1: node}))]
    node.script["/v1/faults"] = [(200, state()), (200, fault())]
    assert run(["faults", "add", *words, "--url", node.url, "--json"]) == 0
    assert sent(node, "POST") == [body | {"id": 1}]
    assert json.loads(capsys.readouterr().out) == {"nodes": [1], "without": [], "fault": fault()}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["drpo"], "'drpo' is not an ACTION; give one of delay, drop, error, close, silence, throttle"),
        (["error"], "the fault error needs a value"),
        (["delay"], "the fault delay needs a value"),
        (["drop", "5s"], "the fault drop takes no value"),
        (["delay", "soon"], "delay: 'soon' is not a span of time"),
        (["close", "--for", "5"], "--for: '5' is not a span of time"),
        (["close", "--node", "7"], "there is no node 7 in this cluster; nodes: 1, 2, 3"),
        (["close", "--times", "often"], "Invalid value for '--times'"),
    ],
)
def test_a_wrong_command_says_what_is_right(
    words: list[str], said: str, two: tuple[HttpNode, HttpNode], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["faults", "add", *words, "--url", two[0].url]) == ExitCode.USAGE
    assert said in capsys.readouterr().err


def test_a_node_that_does_not_allow_faults_gets_none_and_neither_do_the_others(
    two: tuple[HttpNode, HttpNode], capsys: pytest.CaptureFixture[str]
) -> None:
    two[0].script["/v1/faults"] = [(200, state()), (200, state()), (200, fault())]
    two[1].script["/v1/faults"] = [(200, state(enabled=False))]
    assert run(["faults", "add", "drop", "--url", two[0].url]) == ExitCode.REFUSED
    said = capsys.readouterr().err
    assert "node 2 must not be broken: faults.enable is false" in said
    assert "set faults.enable = true" in said
    assert sent(two[0], "POST") == []
    assert run(["faults", "add", "drop", "--node", "1", "--url", two[0].url]) == 0
    assert sent(two[1], "POST") == []


def test_a_fault_that_one_node_refuses_is_set_nowhere(
    two: tuple[HttpNode, HttpNode], capsys: pytest.CaptureFixture[str]
) -> None:
    two[0].script["/v1/faults"] = [(200, state()), (200, fault())]
    two[0].script["/v1/faults/1"] = [(200, {"cleared": 1})]
    refusal = {
        "error": "NOT_ADDED",
        "message": "100 faults are set, and none has ended",
        "hint": "clear some first",
    }
    two[1].script["/v1/faults"] = [(200, state()), (409, refusal)]
    assert run(["faults", "add", "drop", "--url", two[0].url]) == ExitCode.REFUSED
    assert "100 faults are set, and none has ended; clear some first" in capsys.readouterr().err
    assert sent(two[0], "DELETE") == ["/v1/faults/1"]


def test_faults_are_listed_with_their_counts(
    two: tuple[HttpNode, HttpNode], capsys: pytest.CaptureFixture[str]
) -> None:
    ended = fault(1, times=2, applied=2, matched=5, has_ended=True)
    brief = fault(2, api="OffsetCommit", member="m", for_ms=10_000, left_ms=4_000)
    two[0].script["/v1/faults"] = [(200, state(ended, brief))]
    two[1].script["/v1/faults"] = [
        (200, state(fault(2, times=3, applied=1, connection="10.0.0.1"), enabled=False))
    ]
    assert run(["faults", "list", "--url", two[0].url]) == 0
    lines = [[word for word in line.split("  ") if word] for line in capsys.readouterr().out.splitlines()]
    assert [[word.strip() for word in line] for line in lines] == [
        ["FAULT", "NODE", "WHAT", "MATCHED", "APPLIED", "STATE"],
        ["1", "1", "carry requests out: every request", "5", "2", "ended"],
        ["2", "1", "carry requests out: OffsetCommit, member m", "0", "0", "4.0 s left"],
        ["2", "2", "carry requests out: from 10.0.0.1", "0", "1", "2 times left"],
        ["node 2: faults are not allowed (faults.enable)"],
        ["node 3 could not be asked; a node that restarts has no faults"],
    ]
    assert run(["faults", "list", "--url", two[0].url, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [node["node_id"] for node in shown["nodes"]] == [1, 2]
    assert shown["nodes"][0]["faults"] == [ended, brief]
    assert shown["without"] == [3]


def test_faults_are_cleared_everywhere(
    two: tuple[HttpNode, HttpNode], capsys: pytest.CaptureFixture[str]
) -> None:
    two[0].script["/v1/faults"] = [(200, state(fault(1), fault(2)))]
    two[1].script["/v1/faults"] = [(200, state(fault(2)))]
    for node in two:
        for fault_id in (1, 2):
            node.script[f"/v1/faults/{fault_id}"] = [(200, {"cleared": 1})]
    assert run(["faults", "clear", "--url", two[0].url]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "cleared fault 1 on node 1",
        "cleared fault 2 on nodes 1, 2",
    ]
    assert sent(two[1], "DELETE") == ["/v1/faults/2"]
    assert run(["faults", "clear", "2", "--node", "1", "--url", two[0].url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"cleared": [{"id": 2, "node_id": 1}], "without": []}
    assert run(["faults", "clear", "7", "--url", two[0].url]) == ExitCode.REFUSED
    assert "there is no fault 7; `quorate faults list` shows them" in capsys.readouterr().err


def test_no_node_and_a_silent_node_are_told_apart(
    two: tuple[HttpNode, HttpNode], capsys: pytest.CaptureFixture[str]
) -> None:
    two[0].script["/v1/faults"] = [(200, state(next_id=4)), (200, fault(4))]
    two[1].close()
    assert run(["faults", "add", "drop", "--url", two[0].url]) == 0
    said = capsys.readouterr().out
    assert "fault 4 on node 1: " in said
    assert "nodes 2, 3 could not be asked" in said
    two[0].close()
    assert run(["faults", "list", "--url", two[0].url]) == ExitCode.UNREACHABLE
