"""Everything that the documents point to exists: files, tests, benchmarks and make targets."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TESTS = {
    f"{path.relative_to(ROOT)}::{name}"
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
}

FEATURES = {*map(str, range(1, 70)), *(f"S{number}" for number in range(1, 10))}
"""The rows that docs/proofs/conformance.md must have, each once."""

BUGS_OF_OTHERS = """
    12759 15643 16106 16118 16147 16185 16249 16312 16770 16831 17228 17306 17317 17507 17578 17593
    17710 17747 17877 18174 18200 18484 18655 18688 18813 18916 18961 19064 19160 19163 19164 19233
    19274 19335 19427 19431 19449 19519 19546 19661 19716 19760 19825 19826 19862 19909 19974 20115
    20162 20240 20251 20254 20268 20269 20272 20273 20291 20292 20300 20331 20434 20442 20778 20845
    20930 20983 20985 21102 21117
    PR-22739 PR-23542
"""
"""Kafka's issues that docs/proofs/conformance.md must mention."""

HOUSES = (
    *("records", "wire", "client", "coordinator", "lineage"),
    *("raftlog", "cluster", "history", "quorate"),
)
NAMED_BY_CONTENT = ("wire/messages", "quorate/commands")
"""Packages without a map: each module has the name of its message, or of its command."""

MAP_LINE = r"^ *([a-z_]\w*/?(?:, [a-z_]\w*/?)*) {2,}\S"

OUTSIDE_THE_KIP = (
    "wrong epoch", "reply was lost", "acknowledgement", "group epoch", "member ids", "MemberId",
    "regular expressions", "ThrottleTimeMs",
)  # fmt: skip
"""Points that the table of differences from KIP-848's text must have."""


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(document: Path) -> None:
    """A link leads to a file that exists, and to a heading in it."""
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", document.read_text()):
        if "://" in target:
            continue
        there = document.parent / target if target else document
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), f"{target}#{anchor}"


def anchors(document: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub forms them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_test_that_is_cited_exists(document: Path) -> None:
    text = document.read_text()
    cited = set(re.findall(r"tests/[\w/]+\.py::test_\w+", text))
    assert cited <= TESTS
    files = set(re.findall(r"tests/[\w/]+\.py", text))
    assert not [name for name in files if not (ROOT / name).exists()]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_path_that_is_named_exists(document: Path) -> None:
    """A module may be named without its ending."""
    roots = "|".join((*HOUSES, "tests", "benchmarks", "examples"))
    named = set(re.findall(rf"`((?:{roots})/[\w/.-]*)", document.read_text()))
    assert not [path for path in named if not ((ROOT / path).exists() or (ROOT / f"{path}.py").exists())]


def test_the_protocols_sections_have_their_tests() -> None:
    named = set(re.findall(r"`(test_\w+\.py)`", (ROOT / "docs" / "protocol.md").read_text()))
    there = {path.name for path in (ROOT / "tests" / "kip848").glob("test_[bcegh]*.py")}
    assert named == there


def test_every_difference_from_the_kip_has_its_reason_and_its_test() -> None:
    """Each row has a point, the KIP's text, ours, the reason and a test, and cited tests exist."""
    text = (ROOT / "docs" / "protocol.md").read_text()
    table = text.partition("## Where Quorate differs from the text of KIP-848, on purpose\n")[2]
    rows = re.findall(r"^\| (?!Point \|)(.+) \|$", table.partition("\n## ")[0], re.MULTILINE)
    assert len(rows) >= len(OUTSIDE_THE_KIP)
    for row in rows:
        point, *words, tests = row.split(" | ")
        assert [bool(word) for word in words] == [True, True, True], point
        cited = set(re.findall(r"`([^`]+)`", tests))
        assert cited, point
        assert cited <= TESTS, point
    for word in OUTSIDE_THE_KIP:
        assert any(word in row.partition(" | ")[0] for row in rows), word


@pytest.mark.parametrize("house", ["coordinator", "raftlog", "cluster", "history", "quorate/spark"])
def test_the_map_names_every_room(house: str) -> None:
    """docs/architecture.md and the package's docstring name each one; contracts hold what each may import."""
    rooms = {f"{path.parent.name}/" for path in (ROOT / house).glob("*/__init__.py")}
    assert rooms
    text = (ROOT / "docs" / "architecture.md").read_text()
    floors = text[text.rindex(f"\n{house}/  ") :].partition("\n\n")[0]
    for page in (floors, (ROOT / house / "__init__.py").read_text()):
        assert rooms <= set(re.findall(r"\w+/", page)), page


@pytest.mark.parametrize("house", HOUSES)
def test_every_package_opens_with_a_map_of_its_modules(house: str) -> None:
    """Each module and package is named once, with a description, and nothing else is named."""
    for init in sorted((ROOT / house).rglob("__init__.py")):
        modules = {path.stem for path in init.parent.glob("*.py") if not path.stem.startswith("__")}
        packages = {f"{path.parent.name}/" for path in init.parent.glob("*/__init__.py")}
        place = init.parent.relative_to(ROOT).as_posix()
        if len(modules | packages) < 2 or place.startswith(NAMED_BY_CONTENT):
            continue
        text = ast.get_docstring(ast.parse(init.read_text())) or ""
        named = [name for names in re.findall(MAP_LINE, text, re.MULTILINE) for name in names.split(", ")]
        assert Counter(named) == Counter(modules | packages), place


def test_where_to_look_names_what_is_there() -> None:
    """In docs/architecture.md, one column names files, the next their definitions; steps name both."""
    section = (ROOT / "docs" / "architecture.md").read_text().partition("\n## Where is …?\n")[2]
    section = section.partition("\n## ")[0]
    rows = re.findall(r"^\| [^|]+ \| (`[^|]+) \|([^|]*)\|$", section, re.MULTILINE)
    walks = [(steps, steps) for steps in re.findall(r"^\d\. [^:]+: (.+(?:\n   .+)*)", section, re.MULTILINE)]
    assert len(rows) >= 10
    assert len(walks) == 6
    for files, names in rows + walks:
        code = "\n".join((ROOT / path).read_text() for path in re.findall(r"`([^`]+/[^`]+)`", files))
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"\b(?:(?:def|class) {name}\b|{name}(?:: .+)? = )", code), (files, name)


def test_every_benchmark_has_its_figures() -> None:
    text = (ROOT / "docs" / "performance.md").read_text()
    named = set(re.findall(r"`python -m benchmarks (\w+)`", text))
    there = {path.name.removesuffix("_bench.py") for path in (ROOT / "benchmarks").glob("*_bench.py")}
    assert named - {"NAME"} == there


def test_every_feature_and_every_bug_of_others_is_answered_for() -> None:
    """Each is answered with a test, or with words instead; a row may hold several numbers."""
    features, _, bugs = (
        (ROOT / "docs" / "proofs" / "conformance.md").read_text().partition("## Bugs of others")
    )
    assert Counter(re.findall(r"^\| (S?\d+) \|", features, re.MULTILINE)) == Counter(FEATURES)
    rows = re.findall(r"^\| ((?:PR-)?\d{5}[\d, ]*) \| .* \| (.+) \| (.+) \|$", bugs, re.MULTILINE)
    assert Counter(re.findall(r"[-\w]+", " ".join(numbers for numbers, _, _ in rows))) == Counter(
        BUGS_OF_OTHERS.split()
    )
    for numbers, holds, shown in rows:
        excused = ("Cannot", "Comes with", "Not judged")
        assert "::test_" in shown or holds.startswith(excused), numbers
