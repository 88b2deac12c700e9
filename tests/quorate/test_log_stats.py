"""`quorate log stats` for people and scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quorate.app import run
from tests.support.disk_node import DiskNode


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Groups billing (two members, one of them killed) and search (one member), with a failover's restart."""
    path = str(tmp_path_factory.mktemp("logs") / "node-1")
    node = DiskNode(path, num_shards=2)
    node.create_topic("orders", 4)
    ann = node.member("billing", "app-1", "orders").join()
    node.pass_ms(1_000, ann)
    bob = node.member("billing", "app-2", "orders").join()
    cid = node.member("search", "web", "orders").join()
    node.pass_ms(3_000, ann, bob, cid)
    ann.commit({0: 1})
    node.pass_ms(6_000, ann, cid)
    node.stop()
    return path


def test_text_json_and_a_page(home: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "stats", home, "--utc"]) == 0
    text = capsys.readouterr().out
    assert "2 groups" in text
    assert "members     3 × joined, 1 × session expired; one rebalance may be for several" in text
    assert "rebalances  4, each left members in its group; begun by 3 × member joined, 1 × session" in text
    assert run(["log", "stats", home, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    by_id = {one["group_id"]: one["figures"] for one in document["groups"]}
    assert by_id["billing"]["by_reason"] == {"MEMBER_JOINED": 2, "SESSION_EXPIRED": 1}
    assert by_id["billing"]["evicted"] == document["total"]["evicted"] == 1
    assert document["total"]["rebalances"] == sum(one["rebalances"] for one in by_id.values())
    file = tmp_path / "stats.html"
    assert run(["log", "stats", home, "--html", str(file)]) == 0
    assert f"wrote {file}" in capsys.readouterr().out
    assert "billing" in file.read_text()
    assert f" from {home} with <code>quorate log stats {home} --html {file}</code>" in file.read_text()
    assert run(["log", "stats", home, "--html", str(file)]) == 2
    assert "--force" in capsys.readouterr().err
    assert run(["log", "stats", home, "--html", str(file), "--force", "--group", "search"]) == 0
    assert "billing" not in file.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--group", "biling"], "it has billing"),
        (["--since", "3"], "each shard has its own indexes"),
        (["--since", "end-1s", "--until", "end-2s"], "before it begins"),
        (["--until", "2001-01-01"], "the log, as far as it is kept, begins at"),
        (["--force"], "--force needs --html"),
        (["--json", "--html", "x.html"], "exclude each other"),
    ],
)
def test_what_cannot_be_answered(
    home: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["log", "stats", home, *words]) != 0
    assert said in capsys.readouterr().err


def test_windows_by_index_and_time(home: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["log", "stats", home, "--group", "billing", "--since", "start", "--until", "2", "--json"]) == 0
    )
    first = json.loads(capsys.readouterr().out)
    assert first["total"]["rebalances"] == 1
    assert run(["log", "stats", home, "--group", "billing", "--since", "end-4s", "--json"]) == 0
    last = json.loads(capsys.readouterr().out)
    assert last["total"]["by_trigger"] == {"SESSION_EXPIRED": 1}
