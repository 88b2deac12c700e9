"""The folder of a cluster given to every reader, and its terms: who led, why, how long nobody did."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from history.checking.commits import commits, missing_commits
from history.checking.verify import report_text, verify
from history.reading.source import NothingToRead
from history.render import UTC_STYLE
from history.state.replay import replay, replay_all
from history.telling.dump import DumpedSource, dump, dump_json, dump_text
from history.telling.explain import explain
from history.telling.prose import explanation_text
from history.telling.story import TermStep
from history.telling.terms import KeptTerm, terms, terms_text
from history.telling.timeline import timeline
from quorate.app import run as run_quorate
from quorate.errors import ExitCode
from records import TermWhy
from records.ids import METADATA_SHARD
from tests.support.disk_node import DiskHost
from tests.support.golden_texts import golden
from tests.support.memory_log import (
    GROUP,
    commit,
    current,
    group_epoch,
    group_topics,
    member,
    target,
    target_epoch,
)
from tests.support.payments_log import ANN, joined
from tests.support.three_logs import ThreeLogs


def failovers(folder: Path) -> ThreeLogs:
    """Node 1 leads and is killed, node 2 takes over and hands over to node 3, which stalls; and so on."""
    logs = ThreeLogs(folder)
    logs.opens(1, term=1, why=TermWhy.START)
    logs.after(1_000).entry(
        cause=joined(ANN),
        records=[
            member(ANN, "app-1"),
            group_topics(6, 2),
            group_epoch(1),
            target(ANN, 0, 1, 2, 3, 4, 5),
            target_epoch(1),
            current(ANN, 1, (0, 1, 2, 3, 4, 5)),
        ],
    )
    logs.fill(3)
    logs.after(310).opens(2, term=2, why=TermWhy.RESET, previous=1)
    logs.fill(2, term=2)
    logs.after(12).opens(3, term=3, why=TermWhy.TRANSFER, previous=2)
    logs.after(7_000).entry(term=3, records=[commit(2, 10)])
    logs.after(720).opens(1, term=5, why=TermWhy.EXPIRY, previous=3)
    logs.after(3_600_000).opens(2, term=6, why=TermWhy.EXPIRY, previous=1)
    logs.after(40).opens(2, term=7, why=TermWhy.EXPIRY, previous=2)
    logs.after(40).opens(1, term=8, why=TermWhy.RESET)
    return logs


# -- terms ------------------------------------------------------------------------------------------------


def shard_terms(folder: Path) -> list[KeptTerm]:
    return [one for one in terms(str(folder)) if one.shard == 0]


def test_every_term_says_who_led_and_why(tmp_path: Path) -> None:
    failovers(tmp_path)
    found = shard_terms(tmp_path)
    assert [(one.term, one.node_id, one.why, one.previous_leader, one.gap_ms) for one in found] == [
        (1, 1, "START", -1, None),
        (2, 2, "RESET", 1, 310),
        (3, 3, "TRANSFER", 2, 12),
        (5, 1, "EXPIRY", 3, 720),
        (6, 2, "EXPIRY", 1, 3_600_000),
        (7, 2, "EXPIRY", 2, 40),
        (8, 1, "RESET", -1, 40),
    ]
    assert [one.is_takeover for one in found] == [False] + [True] * 6
    assert [one.entries for one in found] == [5, 3, 2, 1, 1, 1, 1]


def test_terms_as_a_table(tmp_path: Path) -> None:
    failovers(tmp_path)
    golden("history/golden/terms.txt", terms_text(terms(str(tmp_path)), width=150, style=UTC_STYLE))


def test_failovers_are_steps_of_a_groups_story(tmp_path: Path) -> None:
    failovers(tmp_path)
    told = explain(str(tmp_path), GROUP, style=UTC_STYLE)
    golden("history/golden/failover_explain.txt", explanation_text(told, UTC_STYLE))
    steps = [step for step in told.steps if isinstance(step, TermStep)]
    said = "term 2: node 2 took over from node 1 (whose connection broke), at most 310 ms without a leader"
    assert steps[1].why == said
    assert said in [row.why for row in timeline(told)]


def test_a_term_that_reached_no_follower_is_undecided(tmp_path: Path) -> None:
    logs = failovers(tmp_path)
    logs.opens(3, 3, term=9, previous=1, commit_index=13)
    shutil.copytree(logs.path(3), tmp_path / "alone" / "copy")
    assert not terms(str(tmp_path / "alone" / "copy"))[-1].decided
    assert [one.term for one in terms(str(logs.path(3)))][-1] == 9
    assert "(UNDECIDED)" in list(terms_text(terms(logs.path(3))))[-1]


def test_a_term_whose_first_entry_is_lost_is_still_a_term(tmp_path: Path) -> None:
    logs = ThreeLogs(tmp_path)
    logs.entry(term=4)
    (found,) = shard_terms(tmp_path)
    assert (found.term, found.node_id, found.why) == (4, None, "")


def test_a_dump_tells_terms_in_words(tmp_path: Path) -> None:
    logs = failovers(tmp_path)
    lines = list(dump_text(dump(logs.path(1)), UTC_STYLE))
    assert any(line.endswith("(whose connection broke), at most 310 ms without a leader") for line in lines)


# -- the folder of a cluster ------------------------------------------------------------------------------


def test_the_furthest_node_is_read_and_named(tmp_path: Path) -> None:
    logs = failovers(tmp_path)
    logs.fill(2, 2, 3, term=8)
    index = logs.entry(2, 3, term=8, records=[commit(0, 77)])
    logs.entry(2, term=8, commit_index=index)
    state = replay(str(tmp_path), group=GROUP)
    assert state.basis.words().startswith("shard-0 of node 2: ")
    assert state.index == index
    assert state == replay(str(tmp_path), shard=0, group=GROUP)
    assert missing_commits(str(tmp_path), [((GROUP, "orders", 0), 77)]) == []
    assert DumpedSource(shard=0, node="node 2") in list(dump(str(tmp_path)))
    assert {one.shard for one in replay_all(str(tmp_path))} == {-1, 0}


def test_what_one_node_holds_alone_is_undecided_in_every_answer(tmp_path: Path) -> None:
    logs = failovers(tmp_path)
    decided = logs.last[1]
    logs.entry(1, term=8, commit_index=decided - 1, records=[commit(1, 99), group_epoch(9)])
    for path in (str(tmp_path), logs.path(1)):
        state = replay(path, group=GROUP)
        assert state.index < logs.last[1]
        assert all(one.offset != 99 for one in state.groups[0].offsets)
        assert state.basis.undecided
        assert [step.epoch for step in explain(path, GROUP).epochs] == [1]
        undecided = [json.loads(line) for line in dump_json(dump(path))][-1]
        assert (undecided["index"], undecided["decided"]) == (decided + 1, False)
        assert all(one.offset != 99 for found in commits(path).values() for one in found)


def test_what_is_on_a_quorum_is_decided_in_the_folder_and_not_in_one_directory(tmp_path: Path) -> None:
    logs = failovers(tmp_path)
    index = logs.entry(1, 2, term=8)
    assert replay(str(tmp_path), shard=0).index == index
    assert replay(logs.path(1), shard=0).index == index - 1


def test_a_catalog_entry_that_one_directory_cannot_prove_is_no_loss(tmp_path: Path) -> None:
    """As on every running node whose newest topic is its newest metadata entry."""
    metadata = ThreeLogs(tmp_path, shard=METADATA_SHARD)
    metadata.fill(6)
    shard = ThreeLogs(tmp_path, is_formatted=True)
    shard.opens(1, term=1, why=TermWhy.START)
    shard.entry(cause=joined(ANN), records=[member(ANN, "app-1"), group_topics(6, 6), group_epoch(1)])
    shard.fill(1)
    report = verify(shard.path(1))
    assert [found.basis.undecided for found in report.shards] == [1, 1]
    assert report.problems == ()
    os.truncate(metadata.file(1), metadata.file(1).stat().st_size - 1)  # now it is lost
    (found,) = verify(shard.path(1)).problems
    assert "uses metadata index 6, but the metadata shard here ends at 5" in found.what


def test_evidence_of_all_nodes_is_told_in_order(tmp_path: Path) -> None:
    from raftlog.storage.evidence import Evidence

    logs = failovers(tmp_path)
    for node, after_ms in ((3, 2_000), (1, 1_000)):
        host = DiskHost()
        host.advance(after_ms)
        evidence = Evidence(host, logs.path(node), 1 << 20)
        evidence.refused(
            api=8, error=25, reason=f"said by {node}", group_id=GROUP, member_id=ANN, client="app-1"
        )
        evidence.close()
    notes = [note["reason"] for note in open_evidence(str(tmp_path))]
    assert notes == ["said by 1", "said by 3"]


def open_evidence(path: str) -> list[dict[str, object]]:
    from history.reading.opening import open_node

    return open_node(path).reader(0).evidence()


def test_a_folder_of_two_clusters_is_refused(tmp_path: Path) -> None:
    logs = ThreeLogs(tmp_path)
    logs.fill(2)
    shutil.rmtree(logs.path(3))
    logs.format(3, cluster_id="another")
    with pytest.raises(NothingToRead, match="belong to different clusters: different cluster"):
        replay_all(str(tmp_path))


# -- the commands -----------------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = run_quorate(list(arguments))
    return code, capsys.readouterr().out


def test_the_commands_take_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = failovers(tmp_path)
    folder = str(tmp_path)
    assert run(capsys, "log", "compare", folder)[0] == 0
    assert run(capsys, "log", "compare", *logs.paths)[0] == 0
    code, out = run(capsys, "log", "verify", folder)
    assert code == 0
    assert [line for line in out.splitlines() if line in logs.paths] == logs.paths
    assert run(capsys, "log", "terms", folder, "--utc")[1].count("took over") == 5
    assert run(capsys, "log", "timeline", folder, GROUP)[0] == 0
    assert run(capsys, "log", "explain", folder, GROUP)[0] == 0
    assert run(capsys, "log", "replay", folder, "--group", GROUP)[0] == 0
    assert len(json.loads(run(capsys, "log", "verify", folder, "--json")[1])["nodes"]) == 3
    assert json.loads(run(capsys, "log", "compare", folder, "--json")[1])["ok"]
    assert (
        json.loads(run(capsys, "log", "terms", folder, "--shard", "0", "--json")[1])["terms"][1]["gap_ms"]
        == 310
    )


def test_a_difference_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = failovers(tmp_path)
    logs.entry(1, 2, term=8, records=[commit(0, 1)])
    logs.entry(3, term=8, records=[commit(0, 2)])
    logs.fill(1, term=8)
    code, out = run(capsys, "log", "compare", str(tmp_path))
    assert code == ExitCode.FAILED
    assert "DIFFERENT: entry 15" in out
    assert run(capsys, "log", "compare", logs.path(1))[0] == ExitCode.UNREADABLE


def test_verify_looks_at_every_node(tmp_path: Path) -> None:
    logs = failovers(tmp_path)
    assert [list(report_text(verify(path))) for path in logs.paths if not verify(path).ok] == []
