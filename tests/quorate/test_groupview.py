"""The text of `groups describe`: its sentences, and that it fits a terminal whatever the ids."""

from __future__ import annotations

import re
from typing import Any

import pytest

from history.columns import display_width
from quorate.groupview import SENTENCES_MAX, lines
from tests.quorate.group_views import member, view


def text(shown: dict[str, Any], width: int | None = None, **given: Any) -> str:
    offsets = given.pop("offsets", {})
    return "\n".join(lines(shown, offsets, at_ms=100_000, width=width, **given))


def wait(partition: int, owner: str, told_ms_ago: float | None, left_ms: float | None) -> dict[str, Any]:
    notice = {"told_ms_ago": told_ms_ago, "left_ms": left_ms}
    return {"topic": "orders", "partition": partition, "owner": owner, **notice}


@pytest.mark.parametrize(
    ("waits", "held_by", "notice"),
    [
        (
            [wait(3, "m1", 1_200.0, 58_800.0)],
            "orders-3, held by m1",
            "was told to revoke it 1.2 s ago and has 58.8 s left",
        ),
        (
            [wait(3, "m1", 1_200.0, 58_800.0), wait(4, "m1", 1_200.0, 58_800.0)],
            "orders:3-4, held by m1",
            "was told to revoke them 1.2 s ago and has 58.8 s left",
        ),
        (
            [wait(3, "m1", None, None)],
            "orders-3, held by m1",
            "will be told with its next heartbeat",
        ),
        (
            [wait(3, "m1", None, 50_000.0)],
            "orders-3, held by m1",
            "was told to revoke it before another node led, and has 50.0 s left",
        ),
        (
            [wait(3, "m0", None, 20_000.0)],
            "orders-3, held by m0",
            "is away and keeps it until its session ends, for 20.0 s more",
        ),
    ],
)
def test_what_a_member_waits_for_is_a_sentence(
    waits: list[dict[str, Any]], held_by: str, notice: str
) -> None:
    shown = view(
        member("m0", is_away=True, instance_id="web-0"),
        member("m1", assigned={"orders": [0]}, pending_revocation={"orders": [3, 4]}),
        member("m2", target={"orders": [wait["partition"] for wait in waits]}, waits_for=waits),
    )
    assert f"m2 waits for {held_by}, which {notice}" in text(shown).splitlines()


def test_free_partitions_come_with_the_next_heartbeat_and_unwanted_ones_are_revoked() -> None:
    shown = text(
        view(
            member("m1", assigned={"orders": [0]}, pending_revocation={"orders": [3]}),
            member("m2", target={"orders": [1]}),
        )
    )
    assert "m2 gets orders-1 with its next heartbeat" in shown
    assert "m1 was told to revoke orders-3; no member waits for it" in shown
    assert "orders:0,3" in shown, "what is not given up yet is still owned"


def test_what_keeps_a_group_from_its_target() -> None:
    shown = text(
        view(
            member("m1"),
            epoch=5,
            assignor_error="the assignor raised",
            computing={"member_id": "m1", "assignor": "own", "left_ms": 4_000.0, "prepared_epoch": None},
            jobs=[{"kind": "assign", "deadline_ms": 5_000}],
        )
    )
    assert "assignor error: the assignor raised" in shown
    assert "the target of epoch 5 is not computed yet" in shown
    assert "m1 computes the target (assignor own) and has 4 s left" in shown
    assert "in a separate process with a time limit of 5 s" in shown


def test_refusals_name_request_error_and_reason() -> None:
    refusal = {"at_ms": 97_000, "api": "OFFSET_COMMIT (8)", "error": "STALE_MEMBER_EPOCH", "error_code": 113}
    refusal |= {"reason": "has epoch 5", "member_id": "gone", "client": "app/h", "times": 3}
    shown = text(view(member("m1", last_refused=refusal), refused_strangers=[refusal]))
    assert "m1: OffsetCommit 3.0 s ago, 3 times in a row: STALE_MEMBER_EPOCH, has epoch 5" in shown
    assert "member gone (app/h), no member: OffsetCommit" in shown


def test_lag_is_shown_where_both_ends_are_known() -> None:
    shown = text(
        view(member("m1", assigned={"orders": [0]})),
        offsets={"orders": {0: 5, 1: 7}, "gone": {0: 1}},
        ends={("orders", 0): 10, ("orders", 1): 7, ("orders", 2): 4},
    ).splitlines()
    assert ["orders", "0", "5", "10", "5", "m1"] in [line.split() for line in shown]
    assert shown[-1] == "total lag 5, 1 partition without an offset, 1 partition whose end is not known"
    beyond = text(view(), offsets={"orders": {0: 12}}, ends={("orders", 0): 10}).splitlines()
    assert ["orders", "0", "12", "10", "0", "-"] in [line.split() for line in beyond]


def test_where_rows_do_not_fit_a_members_partitions_share_one() -> None:
    members = [member(f"m{n + 1}", assigned={"orders": list(range(8 * n, 8 * n + 8))}) for n in range(3)]
    shown = view(*members, state="Stable")
    offsets = {"orders": {number: 100 + number for number in range(24)}}
    ends = {("orders", number): 200 for number in range(25)}
    assert len(text(shown, offsets=offsets, lines_max=60).splitlines()) > 37
    brief = text(shown, offsets=offsets, ends=ends, lines_max=37).splitlines()
    assert len(brief) < 25
    rows = [line.split() for line in brief]
    assert ["orders", "0-7", "828", "1600", "772", "m1"] in rows
    assert ["orders", "24", "-", "200", "-", "-"] in rows
    assert brief[-1] == "total lag 2,124, 1 partition without an offset"


ODD = "店舗-ウェブ-\x1b[31m\n" + "é" * 60


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal_and_no_id_reaches_it_raw(width: int) -> None:
    owned = {"orders": list(range(0, 2_000, 2)), ODD: [1]}
    members = [
        member(f"{ODD}-{number}", client_id=ODD, instance_id=f"{ODD}{number}", assigned=owned, target=owned)
        for number in range(3)
    ]
    waits = [wait(number, members[0]["member_id"], float(number), 5.0) for number in range(50)]
    members[2] |= {"waits_for": waits}
    shown = text(view(*members, group_id=ODD, assignor_error=ODD * 3), width, offsets={"orders": {0: 1}})
    ids = [f"x{number} is member" for number in (1, 2, 3)]
    for line in shown.splitlines():
        assert "\x1b" not in line
        assert display_width(line) <= width or any(line.startswith(legend) for legend in ids), line
    assert f"and {50 - SENTENCES_MAX} more" in shown
    assert len(shown.splitlines()) < 150


def test_a_pipe_gets_whole_lines() -> None:
    owned = {"orders": list(range(0, 2_000, 2))}
    shown = text(view(member("m1", assigned=owned, target=owned))).splitlines()
    assert any(line.count("1998") == 2 for line in shown)


def test_a_member_that_is_away_or_silent_is_said_to_be() -> None:
    shown = text(
        view(
            member("m1", is_away=True, member_epoch=-2, instance_id="web-1", session_left_ms=20_000.0),
            member("m2", session_left_ms=8_000.0),
            member("m3", state="UNREVOKED_PARTITIONS", session_left_ms=0.0),
            member("m4", session_left_ms=44_000.0),
        )
    )
    rows = [re.split(" {2,}", line)[3:5] for line in shown.splitlines() if line.startswith("m")][:4]
    assert rows == [
        ["-", "away, 20.0 s left"],
        ["3", "stable, silent: 8.0 s left"],
        ["3", "revoking, silent: its session is over"],
        ["3", "stable"],
    ]
    plain = text(view(member("m1", member_epoch=-2, state=None, session_left_ms=None), member("m2")))
    assert "-2" not in plain
    assert "away" in plain
