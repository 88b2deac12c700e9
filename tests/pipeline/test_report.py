"""The report: its figures equal those of plain history, and its page contains them and loads nothing."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")
pytest.importorskip("matplotlib", reason="needs the extra spark")

from pyspark.sql import functions as f

from history.answers.stats import stats
from history.export.schema import SCHEMAS
from history.export.sources import ShardRows
from history.facts.group import facts_of
from history.moments import LogWindow
from history.reading.node import NodeLog
from history.reading.opening import open_node
from history.render import UTC_STYLE
from pipeline.report.charts import _time_marks, bars, shortened
from pipeline.report.figures import BUCKETS, ReportFigures, _step, figures_of
from pipeline.report.page import report_page
from pipeline.schema import TABLES, spark_type
from records import MemberState
from tests.support import classic_log
from tests.support.browser import browser_path, opened
from tests.support.memory_log import Writer, current, group_epoch, group_topics, member, target, target_epoch
from tests.support.payments_log import BOB, joined, metadata_log
from tests.support.recorded_incident import INCIDENT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Tables = Callable[[str], "DataFrame"]


def plain_tables(spark: SparkSession, log: NodeLog) -> Tables:
    """Return the tables as plain history fills them."""
    rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in SCHEMAS}
    catalog = log.catalog()
    for shard in log.shards:

        def take(table: str, row: object) -> None:
            rows[table].append(("c", *SCHEMAS[table].values(row)))

        ShardRows(shard, catalog, tuple(SCHEMAS), None, LogWindow(), take).run(log.reader(shard))

    def table(name: str) -> DataFrame:
        if name == "records":
            names = ["cluster_id", *(column.name for column in SCHEMAS["records"].columns)]
            places = [names.index(one) for one in ("shard", "raft_index", "timestamp_ms")]
            moments = [tuple(row[place] for place in places) for row in rows["records"]]
            return spark.createDataFrame(moments, "shard int, raft_index bigint, timestamp_ms bigint")
        return spark.createDataFrame(rows[name], spark_type(TABLES[name].columns))

    return table


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Tables:
    return plain_tables(spark, open_node(str(INCIDENT)))


@pytest.fixture(scope="module")
def figures(tables: Tables) -> ReportFigures:
    found = figures_of(tables)
    assert found is not None
    return found


def test_figures_are_those_of_plain_statistics(figures: ReportFigures) -> None:
    plain = stats(open_node(str(INCIDENT)))
    total = plain.total
    assert figures.num_epochs == total.rebalances
    assert figures.moves == total.moves
    assert figures.num_groups == len(plain.groups)
    assert figures.num_failovers == total.failovers
    assert figures.num_commits == total.commits
    assert {name: sum(by.values()) for name, by in figures.by_trigger.items()} == dict(total.by_trigger)
    assert {kind.kind: kind.count for kind in figures.kinds} == dict(total.findings)
    facts = facts_of(open_node(str(INCIDENT)), "billing")
    spans_ms = [
        e.settled_ms - e.timestamp_ms for e in facts.epochs if e.settled_ms is not None and e.num_members
    ]
    assert sum(figures.settled.values()) == len(spans_ms)
    for step, count in figures.settled.items():
        low = 10 * 2 ** (step - 1) if step else -1
        assert count == sum(low < span_ms <= 10 * 2**step for span_ms in spans_ms)
    assert figures.unowned_ms == pytest.approx(total.unowned_ms)
    assert all(0 <= bucket < BUCKETS for by in figures.by_trigger.values() for bucket in by)


def test_what_is_open_counts_to_the_end_of_its_own_shard(spark: SparkSession) -> None:
    """A shard is not known after its last entry, however long the other shards go on."""
    log = NodeLog("two", {-1: metadata_log().log, 0: waiting("a", 1_000).log, 1: waiting("b", 70_000).log}, 2)
    plain = stats(log).total
    found = figures_of(plain_tables(spark, log))
    assert found is not None
    assert plain.unstable_ms == 1_000 + 70_000
    assert found.unstable_ms == plain.unstable_ms
    assert found.unowned_ms == plain.unowned_ms == 3 * plain.unstable_ms
    assert {row["group_id"]: row["unstable_ms"] for row in found.groups} == {"a": 1_000, "b": 70_000}
    assert {row["group_id"]: row["unowned_ms"] for row in found.unowned} == {"a": 3_000, "b": 210_000}


def test_a_classic_group_is_unstable_from_its_join_phase_on(spark: SparkSession) -> None:
    log = NodeLog("classic", {-1: metadata_log().log, 0: classic_log.group_log().log}, 1)
    found = figures_of(plain_tables(spark, log))
    assert found is not None
    assert found.unstable_ms == stats(log).total.unstable_ms > 60_000
    assert [kind.kind for kind in found.kinds] == ["REBALANCE_TIMED_OUT", "SESSION_EXPIRED"]


def waiting(group: str, span_ms: int) -> Writer:
    """Return a log in which Bob waits for 3, 4 and 5 for the whole span; no member owns them."""
    log = Writer()
    log.append(
        joined(BOB),
        member(BOB, "app", group=group),
        group_topics(6, 2, group=group),
        group_epoch(1, group=group),
        target(BOB, *range(6), group=group),
        target_epoch(1, group=group),
        current(BOB, 0, (0, 1, 2), state=MemberState.UNRELEASED_PARTITIONS, group=group),
    )
    log.after(span_ms).term(2)
    return log


def test_an_epoch_whose_begin_is_missing_is_no_rebalance(tables: Tables, figures: ReportFigures) -> None:
    def behind_a_gap(name: str) -> DataFrame:
        frame = tables(name)
        return frame.withColumn("is_begin_known", f.lit(False)) if name == "group_epochs" else frame

    found = figures_of(behind_a_gap)
    assert found is not None
    assert (found.num_epochs, found.never_settled, found.settled) == (0, 0, {})
    assert (found.by_trigger, found.groups_at_once) == ({}, {})
    assert (found.num_groups, found.unstable_ms) == (figures.num_groups, figures.unstable_ms)


def test_what_a_reader_takes_for_the_doubling_is_exact(spark: SparkSession) -> None:
    spans = [0, 9, 10, 11, 20, 21, *(10 * 2**step + more for step in range(2, 45) for more in (-1, 0, 1))]
    frame = spark.createDataFrame([(one,) for one in spans], "ms long")
    for row in frame.select("ms", _step("ms").alias("step")).collect():
        assert row.ms <= 10 * 2**row.step
        assert row.step == 0 or row.ms > 10 * 2 ** (row.step - 1)


NOON_MS = 1_772_366_400_000
"""2026-03-01 12:00 UTC."""


@pytest.mark.parametrize(
    ("from_ms", "span_ms", "words"),
    [
        (NOON_MS, 1, ["12:00:00"]),
        (NOON_MS + 300, 1, ["12:00:00"]),
        (NOON_MS + 300, 2_500, ["12:00:01", "12:00:02"]),
        (NOON_MS, 3 * 60_000, ["12:00:00", "12:00:30", "12:01:00", "12:01:30", "12:02:00"]),
        (NOON_MS + 1, 6 * 3_600_000, ["13:00", "14:00", "15:00", "16:00", "17:00", "18:00"]),
        (
            NOON_MS,
            3 * 86_400_000,
            ["03-01 12:00", "03-02 00:00", "03-02 12:00", "03-03 00:00", "03-03 12:00"],
        ),
        (NOON_MS, 7 * 86_400_000, [f"2026-03-0{day}" for day in range(2, 9)]),
    ],
)
def test_marks_of_time_are_round_and_told_apart(from_ms: int, span_ms: int, words: list[str]) -> None:
    marks = list(_time_marks(from_ms, span_ms, UTC_STYLE))
    assert [word for _, word in marks][: len(words)] == words
    assert 1 <= len(marks) <= 9
    assert all(from_ms <= at_ms <= from_ms + span_ms for at_ms, _ in marks)


def test_years_have_few_marks() -> None:
    for span_ms in (10**10, 10**11, 10**12, 10**13):
        words = [word for _, word in _time_marks(NOON_MS, span_ms, UTC_STYLE)]
        assert 1 <= len(words) <= 9
        assert len(set(words)) == len(words)


def test_no_rows_no_figures(spark: SparkSession) -> None:
    assert figures_of(lambda name: spark.createDataFrame([], spark_type(TABLES[name].columns))) is None
    assert "no record" in report_page(None, title="nothing")


class _Reader(HTMLParser):
    """Collects the text, and checks that tags are closed in order."""

    VOID = ("meta", "input", "br", "hr", "link")

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(page: str) -> _Reader:
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def test_page_is_whole_and_asks_for_nothing(figures: ReportFigures) -> None:
    reader = read(report_page(figures, title="incident", rests_on=["shard 0: entries 1 to 9"]))
    assert reader.text.index("Findings") < reader.text.index("Rebalances over time")
    assert "REVOCATION_TIMED_OUT" in reader.text
    assert "shard 0: entries 1 to 9" in reader.text
    assert len(set(reader.ids)) == len(reader.ids)
    for name, value in reader.attributes:
        assert name != "style"
        assert not name.startswith("on")
        if name in ("href", "src"):
            assert value.startswith("#")
            assert value[1:] in reader.ids


def test_names_that_clients_chose_stay_text() -> None:
    for evil in ("</text><script>alert(1)</script>&", "\x00\ud800 \n", "$x$ 群 \u202e", "x" * 10_000):
        made = bars([(evil, 3.0)], label="Groups", unit="s")
        assert "<script" not in made
        assert len(made) < 20_000
        read(made)
        made.encode()


def test_long_names_that_begin_alike_are_told_apart() -> None:
    names = [f"production.eu-central-1.payments-reconciliation-{one}" for one in ("alpha", "beta")]
    shown = [shortened(name) for name in names]
    assert shown[0] != shown[1]
    assert {len(name) for name in shown} == {40}
    assert shortened("short") == "short"


def test_an_axis_says_its_numbers_whole() -> None:
    made = bars([("a", 34_000_000.0), ("b", 1.0)], label="Groups", unit="s")
    assert ">30,000,000<" in made
    assert "1e7" not in made


def test_equal_figures_make_equal_pages(figures: ReportFigures) -> None:
    one = report_page(figures, title="incident")
    assert one == report_page(figures, title="incident")
    assert len(one) < 400_000


BROWSER = browser_path()


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
async def test_a_browser_draws_it_without_complaint(figures: ReportFigures, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(report_page(figures, title="incident"), encoding="utf-8")
    assert BROWSER is not None
    (tmp_path / "home").mkdir()
    async with opened(tmp_path / "home", BROWSER) as tab:
        await tab.show(file)
        assert tab.complaints == []
        assert [one for one in tab.requests if not one.startswith("file:")] == []
        charts = await tab.evaluate("document.querySelectorAll('svg.chart').length")
        assert charts >= 4
        fill = await tab.evaluate("getComputedStyle(document.querySelector('svg.chart .c0')).fill")
        assert fill == "rgb(47, 109, 181)"
