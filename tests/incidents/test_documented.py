"""The section of docs/history.md on diagnoses says what the table says; `REWRITE_GOLDEN=1` writes it."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from history.diagnoses import RULES, Rule

PAGE = Path(__file__).parents[2] / "docs" / "history.md"
SECTION = re.compile(r"^## Diagnoses\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)

BEGINNING = """\
## Diagnoses

`quorate log explain` and `quorate log findings` recognise what a healthy group does not show, and call it by
a name. Each rule says what it read: the fields of [the records](records.md), or notes of the evidence file
that each node keeps beside its log. Without an evidence file an answer says which part is unknown; rules that
need it then find nothing. Where two rules rest on the same entries, the one that says more speaks.

What is part of a group's life is no finding: members that join, leave and restart one after another, topics
that grow, hand-overs and restarts of nodes that were planned.
"""
WIDTH = 110


def documented(rule: Rule) -> Iterator[str]:
    yield f"### {rule.name}"
    yield ""
    yield from _wrapped(f"*{rule.severity.value.capitalize()}: {rule.title}.* {rule.means}")
    yield ""
    yield from _wrapped(f"- Reads: {rule.reads}")
    for bound in rule.thresholds:
        yield from _wrapped(f"- `{bound.name}` = {bound:,}: {bound.reason}")
    if rule.needs_evidence:
        yield "- Finds nothing without an evidence file."
    if rule.covers:
        yield from _wrapped(f"- Speaks for {', '.join(rule.covers)} where they rest on the same entries.")
    yield from _wrapped(f"- To do: {rule.do}")


def _wrapped(text: str) -> list[str]:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.wrap(
        text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def test_the_page_says_what_the_rules_say() -> None:
    lines = [BEGINNING]
    for rule in RULES.values():
        lines += [*documented(rule), ""]
    section = "\n".join(lines)
    page = PAGE.read_text() if PAGE.exists() else "# History\n"
    if os.environ.get("REWRITE_GOLDEN"):
        rest = SECTION.sub("", page).rstrip()
        if (present := SECTION.search(page)) is not None:
            page = page[: present.start()] + section + "\n" + page[present.end() :]
        else:
            page = f"{rest}\n\n{section}"
        PAGE.write_text(page.rstrip() + "\n")
    present = SECTION.search(PAGE.read_text())
    assert present is not None
    assert present[0].strip() == section.strip()


def test_every_rule_is_whole() -> None:
    for name, rule in RULES.items():
        assert name == rule.name
        assert rule.means.endswith(".")
        assert rule.do.endswith((".", "?"))
        assert rule.reads.endswith(".")
        assert set(rule.covers) <= RULES.keys()
        assert all(bound.reason and bound > 0 for bound in rule.thresholds)
