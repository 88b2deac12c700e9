"""The pytest plugin: the fixture `quorate`, a cluster of each test's own, and its story beside a failure.

    @pytest.mark.quorate(nodes=3, topics={"orders": 6})
    def test_my_consumer(quorate):
        run_application(quorate.bootstrap)

Nothing of Quorate is imported before a test asks for the fixture, since every run of pytest loads the plugin.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from quorate.testing import QuorateCluster

MARKER: Final = (
    "quorate(nodes=1, topics=None, settings=None): cluster of the fixture `quorate`: number of nodes, "
    "the topics to create with their numbers of partitions, and settings (`quorate docs configuration`)"
)
GROUPS_TOLD_MAX: Final = 20
"""Limit on the groups that are told beside one failure."""

LINES_TOLD_MAX: Final = 60
"""Limit on the lines that the terminal shows of each group's explanation: the last ones."""

CLUSTER: Final[pytest.StashKey[QuorateCluster]] = pytest.StashKey()
"""The running cluster of a test."""

NAME_MAX: Final = 100
"""Limit on the length of a directory's name, which is made of the test's."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("quorate").addoption(
        "--quorate-report",
        metavar="DIR",
        default="quorate-report",
        help="directory for the timelines, explanations and logs of failed tests (default: %(default)s)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.fixture
def quorate(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[QuorateCluster]:
    """A running cluster (`quorate.testing.QuorateCluster`) for this test, as `@pytest.mark.quorate` asks."""
    from quorate.testing import QuorateCluster

    marker = request.node.get_closest_marker("quorate")
    asked = _asked(*marker.args, **marker.kwargs) if marker else _asked()
    with QuorateCluster(tmp_path / "quorate", asked["nodes"], asked["settings"]) as cluster:
        for name, partitions in (asked["topics"] or {}).items():
            cluster.create_topic(name, partitions)
        request.node.stash[CLUSTER] = cluster
        yield cluster


def _asked(
    nodes: int = 1, topics: dict[str, int] | None = None, settings: dict[str, str] | None = None
) -> dict[str, Any]:
    """The arguments of the marker; an unknown one raises TypeError, which names it."""
    return {"nodes": nodes, "topics": topics, "settings": settings}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the story of the test's groups beside its failure, while its cluster still exists."""
    report = yield
    cluster = item.stash.get(CLUSTER, None)
    if cluster is not None and report.failed and report.when != "teardown":  # a fixture may fail too
        reports = item.config.rootpath / item.config.getoption("quorate_report")
        try:
            for section in _told(cluster, reports, _directory_name(item.nodeid)):
                report.sections.append(section)
        except Exception as error:  # the test's own failure must be shown in any case
            report.sections.append(("quorate", f"the log could not be kept: {error!r}"))
    return report


def _told(cluster: QuorateCluster, reports: Path, name: str) -> Iterator[tuple[str, str]]:
    """Yield the sections of pytest's report, and write everything into a fresh directory."""
    groups = cluster.groups()
    told = {group: cluster.explain(group) for group in groups[:GROUPS_TOLD_MAX]}
    for group, explanation in told.items():
        yield f"quorate: group {group}", "\n".join(explanation.splitlines()[-LINES_TOLD_MAX:])
    home = _fresh_directory(reports, name)
    shutil.copytree(cluster.data, home / "log", ignore=shutil.ignore_patterns("*.lock", "*.sock"))
    for number, (group, explanation) in enumerate(told.items(), 1):
        page = home / f"{number:02}-{_directory_name(group)}.html"
        page.with_suffix(".txt").write_text(explanation + "\n", encoding="utf-8")
        page.write_text(cluster.timeline(group), encoding="utf-8")
        yield f"quorate: timeline of group {group}", str(page)
    left_out = len(groups) - len(told)
    more = f"; {left_out} more groups are in it" if left_out else ""
    yield "quorate", f"log: {home / 'log'} (read it with `quorate log`){more}"


def _fresh_directory(reports: Path, name: str) -> Path:
    """Make an empty directory for one test; a temporary one where the project cannot be written to."""
    home = reports / name
    try:
        if home.exists():
            shutil.rmtree(home)
        home.mkdir(parents=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="quorate-report-"))
    return home


def _directory_name(text: str) -> str:
    """A name that every file system takes, and that no other text has: tests may run side by side."""
    words = re.sub(r"[^\w.-]+", "-", text).strip("-.")[-NAME_MAX:]
    return f"{words}-{hashlib.sha256(text.encode()).hexdigest()[:8]}".strip("-")
