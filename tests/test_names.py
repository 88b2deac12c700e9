"""Names are precise: a public class name is unique in the product, a test's name says who does what."""

import re
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROOMS = (
    *("records", "wire", "client", "coordinator", "lineage"),
    *("raftlog", "cluster", "history", "quorate"),
)
MESSAGES = "wire/messages/"
"""The schemas of the protocol, whose nested classes share names."""

BOTH = {"TopicPartition", "MemberState", "GroupState"}
"""Kafka's names: the partition of the client's users and that of the rows of history, which hash and sort
differently; and the states of a member and of a group, of which client and coordinator have their own."""

RETIRED = frozenset({
    "Surroundings", "Draft", "Outcome", "TopicNews", "Regularity", "Rhythm", "ShardLife", "QuietLog",
    "Seldom", "Lending", "Feeding", "Backfilling", "Applying", "Comparing", "Passing", "spread_news",
    "stand_down", "Feed", "LinkObserver",
})  # fmt: skip
"""Names that were replaced by standard terms; docs/glossary.md lists the project's own words."""


@cache
def _modules() -> dict[str, str]:
    """Return the source of every module of the product, by path."""
    paths = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def test_public_class_names_are_unique() -> None:
    paths: dict[str, list[str]] = defaultdict(list)
    for path, source in _modules().items():
        if not path.startswith(MESSAGES):
            for name in re.findall(r"^class ([A-Za-z]\w*)", source, re.MULTILINE):
                paths[name].append(path)
    assert len(paths) > 500, "no classes found"
    assert not {name: found for name, found in paths.items() if len(found) > 1 and name not in BOTH}


def test_names_that_were_replaced_do_not_come_back() -> None:
    defined = re.compile(rf"^ *(?:class|def) ({'|'.join(RETIRED)})\b", re.MULTILINE)
    assert not {path: found for path, source in _modules().items() if (found := defined.findall(source))}


def test_names_of_tests_say_who_and_what() -> None:
    vague = re.compile(r"_(?:(?:any|every|no|some)bodys?|everything|something|whatever|whoever)(?:_|$)")
    named = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    names = [name for path in paths for name in named.findall(path.read_text(encoding="utf-8"))]
    assert len(names) > 2_000, "no tests found"
    assert not [name for name in names if vague.search(name)]
    assert not [name for name in names if len(name) > 86]
