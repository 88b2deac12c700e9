"""What the documents point to exists: files, tests, benchmarks and make targets that they name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TESTS = {
    f"{path.relative_to(ROOT)}::{name}"
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text())
    missing = [target for target in targets if not (document.parent / target).exists()]
    assert not [target for target in missing if "://" not in target]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_test_that_is_cited_exists(document: Path) -> None:
    text = document.read_text()
    cited = set(re.findall(r"tests/[\w/]+\.py::test_\w+", text))
    assert cited <= TESTS
    files = set(re.findall(r"tests/[\w/]+\.py", text))
    assert not [name for name in files if not (ROOT / name).exists()]


def test_the_protocols_sections_have_their_tests() -> None:
    named = set(re.findall(r"`(test_\w+\.py)`", (ROOT / "docs" / "protocol.md").read_text()))
    there = {path.name for path in (ROOT / "tests" / "kip848").glob("test_[bcegh]*.py")}
    assert named == there


def test_every_benchmark_has_its_figures() -> None:
    text = (ROOT / "docs" / "performance.md").read_text()
    named = set(re.findall(r"`python -m benchmarks (\w+)`", text))
    there = {path.name.removesuffix("_bench.py") for path in (ROOT / "benchmarks").glob("*_bench.py")}
    assert named - {"NAME"} == there
