"""The report: its figures equal those of plain history, and its page contains them and loads nothing."""

from __future__ import annotations

from collections import Counter
from datetime import UTC
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")
pytest.importorskip("matplotlib", reason="needs the extra spark")

from pyspark.sql import functions as f

from history.answers.figures import rounded
from history.answers.stats import stats
from history.facts.group import facts_of
from history.facts.rows import time_to_stable_ms
from history.reading.node import NodeLog
from history.reading.opening import open_node
from history.render import TimeStyle
from quorate.spark.report.aggregates import with_names
from quorate.spark.report.charts import bars
from quorate.spark.report.figures import GROUPS_SHOWN, STABLE_EDGES_MS, ReportFigures, figures_of
from quorate.spark.report.page import report_page
from quorate.spark.report.parts import finding
from quorate.spark.report.scale import PERIODS_MAX, TRENDS_MAX, scale_of
from quorate.spark.schema import MS_MAX, MS_MIN, TABLES, spark_type
from records import MemberState
from tests.pipeline.report_tables import Tables, plain_tables, tables_of_years
from tests.support import classic_log
from tests.support.browser import MISPLACED, browser_path, opened
from tests.support.memory_log import Writer, current, group_epoch, group_topics, member, target, target_epoch
from tests.support.payments_log import BOB, joined, metadata_log
from tests.support.recorded_incident import INCIDENT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark  # some twenty seconds of Spark's jobs


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
    assert figures.whole["rebalances"] == total.rebalances
    assert figures.moves == total.moves
    assert figures.num_groups == len(plain.groups)
    assert sum(figures.failed_over.values()) == total.failovers
    assert sum(figures.commits.values()) == total.commits
    assert {name: sum(by.values()) for name, by in figures.by_trigger.items()} == dict(total.by_trigger)
    assert {rule["kind"]: rule["count"] for rule in figures.rules} == dict(total.findings)
    facts = facts_of(open_node(str(INCIDENT)), "billing")
    times_ms = [time_to_stable_ms(epoch) for epoch in facts.epochs if epoch.num_members]
    spans_ms = [span_ms for span_ms in times_ms if span_ms is not None]
    assert sum(figures.settled.values()) == sum(total.settled.values()) == len(spans_ms)
    assert figures.whole["max_ms"] == total.settle_max_ms == max(spans_ms) > 74_000, "with overtaken epochs"
    for share, span_ms in zip((0.5, 0.95), figures.whole["quantiles"], strict=True):
        assert rounded(span_ms) == total.settled_within(share)
    for edge, count in figures.settled.items():
        low = max((one for one in STABLE_EDGES_MS if one < edge), default=-1)
        assert count == sum(low < span_ms <= edge for span_ms in spans_ms)
    assert sum(figures.unowned.values()) == pytest.approx(total.unowned_ms)
    assert all(0 <= place < figures.scale.count for by in figures.by_trigger.values() for place in by)


def test_periods_and_groups_sum_up_to_the_whole(figures: ReportFigures) -> None:
    periods = [row for place, row in figures.epochs.items() if place is not None]
    for name in ("rebalances", "overtaken", "unstable_ms"):
        assert sum(row[name] for row in periods) == figures.whole[name]
        assert sum(group.epochs[None][name] for group in figures.groups) == figures.whole[name]
    assert sum(group.moves for group in figures.groups) == figures.moves
    assert max(row["max_ms"] or 0 for row in periods) == figures.whole["max_ms"]
    assert sum(sum(group.unowned.values()) for group in figures.groups) == sum(figures.unowned.values())
    assert sum(sum(group.commits.values()) for group in figures.groups) == sum(figures.commits.values())
    assert sum(sum(counts.values()) for counts in figures.found.values()) == figures.num_findings
    assert sum(sum(counts.values()) for counts in figures.rule_trend.values()) == figures.num_findings


def test_a_group_says_who_its_members_were(figures: ReportFigures) -> None:
    sessions = facts_of(open_node(str(INCIDENT)), "billing").sessions
    (group,) = figures.groups
    assert group.name == "billing"
    told = {(row["client_id"], row["instance_id"]): row for row in group.clients}
    assert set(told) == {(one.client_id, one.instance_id) for one in sessions}
    assert group.num_clients == len(told)
    for who, row in told.items():
        of_client = [one for one in sessions if (one.client_id, one.instance_id) == who]
        assert row["sessions"] == len(of_client)
        ends = {end: number for end, number in row["ends"].items() if number}
        assert ends == Counter(one.end.value for one in of_client)


def test_findings_call_members_by_the_numbers_that_they_have(tables: Tables) -> None:
    """The incident's log is of an older release, without numbers; some are made up here."""
    found = tables("findings").filter("instr(words, concat('`', members[0], '`')) > 0").limit(1)
    ((group_id, ids),) = found.select("group_id", "members").collect()
    sessions = tables("member_sessions").filter(f.col("group_id") == group_id)
    assert with_names(found, sessions).first()["names"] is None  # type: ignore[index]
    row = with_names(found, sessions.withColumn("number", f.lit(7))).first()
    assert row is not None
    assert set(row["names"]) <= set(ids)
    said = finding(row.asDict() | {"from_ms": 0}, TimeStyle(zone=UTC))[-1]
    assert row["names"][ids[0]] in str(said)
    assert ids[0] not in str(said)
    assert row["names"][ids[0]].startswith("m7 (")


def test_what_is_open_counts_to_the_end_of_its_own_shard(spark: SparkSession) -> None:
    """A shard is not known after its last entry, however long the other shards go on."""
    log = NodeLog("two", {-1: metadata_log().log, 0: waiting("a", 1_000).log, 1: waiting("b", 70_000).log}, 2)
    plain = stats(log).total
    found = figures_of(plain_tables(spark, log))
    assert found is not None
    assert plain.unstable_ms == 1_000 + 70_000
    assert found.whole["unstable_ms"] == plain.unstable_ms
    assert sum(found.unowned.values()) == plain.unowned_ms == 3 * plain.unstable_ms
    unstable = {group.name: group.epochs[None]["unstable_ms"] for group in found.groups}
    assert unstable == {"a": 1_000, "b": 70_000}
    assert {group.name: sum(group.unowned.values()) for group in found.groups} == {"a": 3_000, "b": 210_000}


def test_a_classic_group_is_unstable_from_its_join_phase_on(spark: SparkSession) -> None:
    log = NodeLog("classic", {-1: metadata_log().log, 0: classic_log.group_log().log}, 1)
    found = figures_of(plain_tables(spark, log))
    assert found is not None
    assert found.whole["unstable_ms"] == stats(log).total.unstable_ms > 60_000
    assert [rule["kind"] for rule in found.rules] == ["REBALANCE_TIMED_OUT", "SESSION_EXPIRED"]


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
    whole = found.whole
    assert (whole["rebalances"], whole["overtaken"], whole["max_ms"]) == (0, 0, None)
    assert (found.settled, found.by_trigger) == ({}, {})
    assert (found.num_groups, whole["unstable_ms"]) == (figures.num_groups, figures.whole["unstable_ms"])


NOON_MS = 1_772_366_400_000
"""2026-03-01 12:00 UTC, a Sunday."""
DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("span_ms", "unit", "first", "last"),
    [
        (0, "second", "12:00:00", "12:00:00"),
        (180_000, "5 s", "12:00:00", "12:03:00"),
        (6 * 3_600_000, "15 min", "12:00", "18:00"),
        (2 * DAY_MS, "hour", "03-01 12:00", "03-03 12:00"),
        (20 * DAY_MS, "day", "2026-03-01", "2026-03-21"),
        (100 * DAY_MS, "month", "2026-03", "2026-06"),
        (3_000 * DAY_MS, "3 months", "2026-01", "2034-04"),
        (20_000 * DAY_MS, "year", "2026", "2080"),
    ],
)
def test_marks_of_time_are_round_and_told_apart(span_ms: int, unit: str, first: str, last: str) -> None:
    scale = scale_of(NOON_MS, NOON_MS + span_ms)
    assert scale.unit == unit
    assert (scale.label(0), scale.label(scale.count - 1)) == (first, last)
    assert len({scale.label(place) for place in range(scale.count)}) == scale.count <= PERIODS_MAX
    assert scale.starts[0] <= NOON_MS <= NOON_MS + span_ms < scale.starts[-1]


def test_any_clock_has_bounded_periods() -> None:
    for until_ms in (NOON_MS, NOON_MS + 10**10, MS_MAX):
        for from_ms in (MS_MIN, -1, 0, NOON_MS):
            if from_ms <= until_ms:
                assert 1 <= scale_of(from_ms, until_ms).count <= PERIODS_MAX
                assert 1 <= scale_of(from_ms, until_ms, by_week=True).count <= TRENDS_MAX


def test_spark_finds_the_period_that_python_names(spark: SparkSession) -> None:
    scales = [
        scale_of(NOON_MS, NOON_MS + span_ms, by_week=by_week)
        for span_ms in (180_000, 5 * DAY_MS, 500 * DAY_MS, 9_000 * DAY_MS)
        for by_week in (False, True)
    ]
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    try:
        for scale in scales:
            moments = [(at + more, scale.starts.index(at)) for at in scale.starts[1:-1] for more in (0, 1)]
            moments += [(at - 1, scale.starts.index(at) - 1) for at in scale.starts[1:]]
            frame = spark.createDataFrame(moments, "at_ms bigint, expected int")
            assert frame.filter(scale.place(f.col("at_ms")) != f.col("expected")).count() == 0
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")


@pytest.fixture(scope="module")
def years(spark: SparkSession) -> ReportFigures:
    found = figures_of(tables_of_years(spark, groups=10_000, rows=60_000))
    assert found is not None
    return found


def test_years_of_ten_thousand_groups_are_a_small_page(years: ReportFigures) -> None:
    made = report_page(years, title="years")
    assert years.num_groups > 5_000
    assert years.scale.unit == "month"
    assert years.trend.unit == "week"
    assert len(years.groups) == GROUPS_SHOWN
    assert len(made.encode()) < 2_000_000
    reader = read(made)
    assert "Findings by week" in reader.text
    for place, group in enumerate(years.groups, 1):
        assert f"g{place}" in reader.ids
        assert group.name in reader.text


def test_time_without_an_owner_counts_in_every_month_it_meets(spark: SparkSession) -> None:
    tables = tables_of_years(spark, groups=1, rows=40)

    def one_span(name: str) -> DataFrame:
        if name != "ownership":
            return tables(name)
        long = tables(name).filter("kind = 'unowned'").limit(1)
        return long.withColumns(
            {
                "from_time": f.expr("timestamp'2024-02-10 00:00:00Z'"),
                "to_time": f.expr("timestamp'2024-04-02 00:00:00Z'"),
            }
        )

    found = figures_of(one_span)
    assert found is not None
    days = {found.scale.label(place): ms / DAY_MS for place, ms in found.unowned.items()}
    assert days == {"2024-02": 20, "2024-03": 31, "2024-04": 1}
    assert dict(found.groups[0].unowned) == dict(found.unowned)


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
    assert reader.text.index("Findings") < reader.text.index("Groups, the worst first")
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
        await tab.look(width=390)
        await tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        await tab.drawn()
        assert await tab.evaluate(MISPLACED) == []
        assert await tab.evaluate("document.documentElement.scrollWidth") == 390
        fill = await tab.evaluate("getComputedStyle(document.querySelector('svg.chart .c0')).fill")
        assert fill == "rgb(47, 109, 181)"
