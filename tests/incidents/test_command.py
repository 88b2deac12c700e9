"""`quorate log findings` on directories as nodes write them: one group, all groups, windows, JSON, help."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from quorate.app import run as run_quorate
from quorate.errors import ExitCode
from tests.support.incidents.scenarios import INCIDENTS
from tests.support.incidents.truth import Known
from tests.support.incidents.world import GROUP

from .quiet import QUIET


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Known, str]:
    """A member that never gives up, then one that is paused."""
    known = INCIDENTS["one never acknowledges, another is paused"].run(2)
    path = str(tmp_path_factory.mktemp("node"))
    known.world.save(path)
    return known, path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run_quorate(["log", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_all_groups_and_one_are_told_alike(
    saved: tuple[Known, str], capsys: pytest.CaptureFixture[str]
) -> None:
    known, path = saved
    code, every, _ = run(capsys, "findings", path, "--utc")
    assert code == 0
    one = run(capsys, "findings", path, GROUP, "--utc")[1]
    assert one.replace(f"in group {GROUP}", "in 1 group") == every
    for truth in known.truths:
        assert truth.kind in every
        assert all(member in every for member in truth.members)
    assert every.startswith("2 findings from 2023-11-14 ")
    assert every.splitlines()[1] == "1 error and 1 warning in 1 group"


def test_findings_less_grave_than_asked_for_are_left_out_and_counted(
    saved: tuple[Known, str], capsys: pytest.CaptureFixture[str]
) -> None:
    fenced, paused = saved[0].truths
    out = run(capsys, "findings", saved[1], "--severity", "error")[1]
    assert (fenced.kind in out, paused.kind in out) == (True, False)
    assert "1 error in 1 group; 1 milder finding left out" in out
    answer = json.loads(run(capsys, "findings", saved[1], "--severity", "error", "--json")[1])
    assert [one["kind"] for group in answer["groups"] for one in group["findings"]] == [fenced.kind]
    assert answer["milder"] == 1
    code, _, err = run(capsys, "findings", saved[1], "--severity", "grave")
    assert code == ExitCode.USAGE
    assert "error" in err


def test_json_has_every_field(saved: tuple[Known, str], capsys: pytest.CaptureFixture[str]) -> None:
    known, path = saved
    answer = json.loads(run(capsys, "findings", path, "--json")[1])
    (group,) = answer["groups"]
    assert answer["groups_read"] == 1
    for truth, found in zip(known.truths, group["findings"], strict=True):
        assert found["kind"] == truth.kind
        assert set(truth.members) <= set(found["members"])
        parts = {(one["topic"], one["partition"]) for one in found["partitions"]}
        assert {(one.topic, one.partition) for one in truth.partitions} <= parts


def test_a_window_selects_and_an_end_hides_what_came_later(
    saved: tuple[Known, str], capsys: pytest.CaptureFixture[str]
) -> None:
    known, path = saved
    fenced, paused = known.truths
    later = run(capsys, "findings", path, "--since", str(paused.at_ms - 1_000))[1]
    assert (fenced.kind in later, paused.kind in later) == (False, True)
    earlier = run(capsys, "findings", path, "--until", str(paused.at_ms - 1_000))[1]
    assert (fenced.kind in earlier, paused.kind in earlier) == (True, False)


def test_without_the_evidence_file_the_answer_says_so(
    saved: tuple[Known, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(saved[1], copy)
    for file in copy.glob("evidence.*"):
        file.unlink()
    out = run(capsys, "findings", str(copy))[1]
    assert "note: there is no evidence file" in out
    assert "are unknown: there is no evidence file" in out


def test_a_quiet_log_is_told_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    QUIET["rolling restart"].run(1).world.save(str(tmp_path))
    code, out, _ = run(capsys, "findings", str(tmp_path))
    assert code == 0
    assert out.startswith("nothing odd in 1 group from ")
    assert f"nothing odd in group {GROUP} from " in run(capsys, "findings", str(tmp_path), GROUP)[1]


def test_a_group_that_is_not_there_gets_those_that_are(
    saved: tuple[Known, str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "findings", saved[1], "paymnts")
    assert code == ExitCode.UNREADABLE
    assert GROUP in err


def test_an_index_needs_a_group(saved: tuple[Known, str], capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "findings", saved[1], "--since", "12")
    assert code == ExitCode.USAGE
    assert "each shard has its own indexes" in err
    code, out, err = run(capsys, "findings", saved[1], GROUP, "--since", "999999")
    assert (code, out) == (ExitCode.UNREADABLE, "")
    assert "index 999999 does not exist, the last one is" in err


def test_a_window_behind_the_end_says_where_the_log_ends(
    saved: tuple[Known, str], capsys: pytest.CaptureFixture[str]
) -> None:
    said = "before the window begins: nothing was written since, or not on this node"
    code, out, err = run(capsys, "findings", saved[1], GROUP, "--since", "2099-01-01")
    assert (code, out) == (ExitCode.UNREADABLE, "")
    assert said in err
    code, out, err = run(capsys, "findings", saved[1], GROUP, "--since", "end-1s")
    assert code == ExitCode.OK
    assert said not in out + err


def test_the_rules_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "SLOW_REVOCATION_MS = 10,000" in run(capsys, "findings", "--rules")[1]
    listed = json.loads(run(capsys, "findings", "--rules", "--json")[1])["rules"]
    assert {"name", "means", "reads", "do", "thresholds"} <= listed[0].keys()


def test_the_saved_log_is_sound(saved: tuple[Known, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "verify", saved[1])[0] == 0
