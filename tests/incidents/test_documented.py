"""The table of diagnoses in docs/history.md equals the table of rules; `REWRITE_GOLDEN=1` rewrites it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from history.answers.findingstext import rules_text
from history.diagnoses import RULES, Rule

PAGE = Path(__file__).parents[2] / "docs" / "history.md"
SECTION = re.compile(r"^## Diagnoses\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"^\| Rule .*?(?=^[^|]|\Z)", re.MULTILINE | re.DOTALL)


def documented() -> Iterator[str]:
    yield "| Rule | Severity | Meaning | Instead of |"
    yield "|---|---|---|---|"
    for rule in RULES.values():
        yield _row(rule)


def _row(rule: Rule) -> str:
    means = f"{rule.means} *Needs evidence.*" if rule.needs_evidence else rule.means
    return f"| {rule.name} | {rule.severity.value} | {means} | {', '.join(rule.covers)} |"


def test_the_page_says_what_the_rules_say() -> None:
    expected = "".join(f"{line}\n" for line in documented())
    page = PAGE.read_text()
    section = SECTION.search(page)
    assert section is not None
    present = TABLE.search(section[0])
    assert present is not None
    if os.environ.get("REWRITE_GOLDEN"):
        PAGE.write_text(page.replace(present[0], expected))
        return
    assert present[0] == expected


def test_the_command_prints_the_rest_of_each_rule() -> None:
    printed = "\n".join(rules_text())
    for rule in RULES.values():
        assert rule.reads in printed
        assert rule.do in printed
        assert all(f"{bound.name} = {bound:,}: {bound.reason}" in printed for bound in rule.thresholds)


def test_every_rule_is_whole() -> None:
    for name, rule in RULES.items():
        assert name == rule.name
        assert rule.means.endswith(".")
        assert rule.do.endswith((".", "?"))
        assert rule.reads.endswith(".")
        assert set(rule.covers) <= RULES.keys()
        assert all(bound.reason and bound > 0 for bound in rule.thresholds)
