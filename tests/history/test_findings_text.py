"""The text of `findings`: a summary, then the gravest first, thirty lines at most however many there are."""

from __future__ import annotations

import random

import pytest

from history.answers.findings import Findings, GroupFindings, LeaderFindings
from history.answers.findingstext import LINES_MAX, findings_text
from history.diagnoses import RULES
from history.facts.rows import GroupFinding, Severity
from history.reading.source import Basis
from history.render import UTC_STYLE
from tests.support.memory_log import NOON_MS

MEMBERS = {
    "m1": "AAAAAAAAAAAAAAAA (client app-1, 10.0.0.1)",
    "m2": "BBBBBBBBBBBBBBBB (client app-2, 10.0.0.2)",
}
KINDS = ("FLAPPING_MEMBER", "MEMBER_PAUSED", "SLOW_REVOKER", "SESSION_EXPIRED", "NO_TARGET")


def finding(kind: str, group: str | None, at_ms: int, member: str = "m1") -> GroupFinding:
    member_id = MEMBERS[member].partition(" ")[0]
    return GroupFinding(
        kind=kind,
        severity=RULES[kind].severity,
        group_id=group,
        shard=0,
        epochs=(3,) if group else (),
        members=(member_id,) if group else (),
        partitions=(),
        from_index=7,
        from_ms=NOON_MS + at_ms,
        to_index=9,
        to_ms=NOON_MS + at_ms + 1_000,
        words=f"`{member_id}` was odd" if group else "node 1 took over shard-0",
        rests_on=(7, 9),
        is_certain=True,
    )


def answer(groups: dict[str, list[GroupFinding]], *, leaders: int = 0, read: int | None = None) -> Findings:
    basis = Basis(
        shard=0,
        snapshot_index=None,
        first_index=1,
        last_index=99,
        last_timestamp_ms=NOON_MS,
        gaps=(),
        undecided=0,
    )
    of_leaders = tuple(finding("FAILOVER", None, number) for number in range(leaders))
    return Findings(
        from_ms=NOON_MS,
        until_ms=NOON_MS + 259_200_000,
        groups=tuple(
            GroupFindings(group_id=name, shard=0, members=MEMBERS, findings=tuple(found))
            for name, found in groups.items()
        ),
        groups_read=len(groups) if read is None else read,
        is_of_one=False,
        basis=(basis,),
        notes=("there is no evidence file",),
        shards=(LeaderFindings(shard=0, findings=of_leaders),) if leaders else (),
    )


def test_a_summary_comes_first_then_the_gravest() -> None:
    found = answer(
        {
            "ads": [finding("SLOW_REVOKER", "ads", 1), finding("FLAPPING_MEMBER", "ads", 9, "m2")],
            "web": [finding("FLAPPING_MEMBER", "web", 5), finding("FLAPPING_MEMBER", "web", 6)],
        },
        leaders=2,
        read=3,
    )
    text = list(findings_text(found, UTC_STYLE, again="quorate log findings x"))
    head = "6 findings from 2026-03-01 12:00:00.000+00:00 to 2026-03-04 12:00:00.000+00:00 (3 d)"
    assert text[:2] == [head, "3 errors, 1 warning and 2 notes in 2 of 3 groups and 1 shard"]
    kinds = [line.split()[:3] for line in text[text.index("") + 1 :][:3]]
    assert kinds == [
        ["error", "3", "FLAPPING_MEMBER"],
        ["warning", "1", "SLOW_REVOKER"],
        ["note", "2", "FAILOVER"],
    ]
    listed = text[-8:-2]
    assert listed[0].startswith("error    web  FLAPPING_MEMBER 2026-03-01 12:00:00: m1 (app-1) was odd")
    assert [line.split()[:2] for line in listed] == [
        ["error", "web"],
        ["error", "web"],
        ["error", "ads"],
        ["warning", "ads"],
        ["note", "shard-0"],
        ["note", "shard-0"],
    ]
    assert text[-1] == "every finding in full: quorate log findings x --all"


def test_a_few_are_told_in_full_with_the_members_that_they_name() -> None:
    found = answer({"ads": [finding("SLOW_REVOKER", "ads", 1), finding("FLAPPING_MEMBER", "ads", 9)]})
    text = list(findings_text(found, UTC_STYLE))
    assert [line.split()[2] for line in text if line.startswith("2026")] == ["ERROR", "WARNING"]
    assert sum(line.startswith("  to do     ") for line in text) == 2
    assert text[-2:] == [f"m1 is {MEMBERS['m1']}", f"m2 is {MEMBERS['m2']}"]
    (only,) = found.at_least(Severity.ERROR).groups
    assert [list(only.members), len(only.findings)] == [["m1"], 1]


@pytest.mark.parametrize("seed", range(5))
def test_many_findings_fit_thirty_lines_and_none_is_lost(seed: int) -> None:
    rng = random.Random(seed)
    groups = {
        f"group-{number}": [
            finding(rng.choice(KINDS), f"group-{number}", rng.randint(0, 10**8))
            for _ in range(rng.randint(1, 40))
        ]
        for number in range(40)
    }
    found = answer(groups, leaders=9)
    text = list(findings_text(found, UTC_STYLE))
    assert len(text) == LINES_MAX
    assert not any("…" in line for line in text), "a terminal wraps sentences, and nothing is cut off"
    shown = sum(int(line.split()[3]) if " times, first " in line else 1 for line in text if _is_listed(line))
    total = sum(map(len, groups.values())) + 9
    left_out = sum(
        int(word) for word in text[-1].partition(" are not")[0].replace(",", "").split() if word.isdecimal()
    )
    assert shown + left_out == total
    whole = list(findings_text(found, UTC_STYLE, whole=True))
    assert sum(line.startswith("  to do     ") for line in whole) == total


def _is_listed(line: str) -> bool:
    return line.split()[:1] in (["error"], ["warning"], ["note"]) and not line.split()[1].isdecimal()
