"""Tables at any width: whole words, no line too wide, and blocks of lines where columns have no room."""

from __future__ import annotations

import pytest

from history.columns import display_width, table, wrapped

HEADINGS = ("epoch", "index", "why", "owners")
WHY = "m2 (client billing-2, 10.0.0.12) did not give up its partitions in time"
OWNERS = "m1: orders 0-2,11,14 | m3: orders 3-5,8-9 | m8: orders 6-7,10,12-13,15"
ROWS = [("14", "223", WHY, OWNERS), ("-", "207", "term 2", "")]


@pytest.mark.parametrize("width", [*range(40, 200, 7), 200])
def test_no_width_is_exceeded_and_no_word_broken(width: int) -> None:
    lines = table(HEADINGS, ROWS, width)
    assert max(map(display_width, lines)) <= width
    words = " ".join(lines).split()
    for word in (WHY + " " + OWNERS.replace(",", ", ")).split():
        assert any(word in shown for shown in words), (word, lines)


def test_a_narrow_terminal_gets_a_block_for_each_row() -> None:
    assert table(HEADINGS, ROWS, 31) == [
        "EPOCH   14",
        "INDEX   223",
        "WHY     m2 (client billing-2,",
        "        10.0.0.12) did not give",
        "        up its partitions in",
        "        time",
        "OWNERS  m1: orders 0-2,11,14 |",
        "        m3: orders 3-5,8-9 |",
        "        m8: orders 6-7,10,",
        "        12-13,15",
        "",
        "EPOCH   -",
        "INDEX   207",
        "WHY     term 2",
        "OWNERS",
    ]


def test_the_widest_column_gives_way_and_the_others_keep_their_width() -> None:
    lines = table(HEADINGS, ROWS, 120)
    assert [line.split()[0] for line in lines] == ["EPOCH", "14", "partitions", "-"]
    assert len(table(HEADINGS, ROWS, 200)) == 3


def test_numbers_stand_right_also_where_cells_wrap() -> None:
    assert table(("N", "TEXT"), [(7, "one two three"), (12, "four")], 12) == [
        " N  TEXT",
        " 7  one two",
        "    three",
        "12  four",
    ]


def test_a_line_wraps_with_a_hanging_indent() -> None:
    assert wrapped("one two three four five six", 20) == ["one two three four", "  five six"]
    assert wrapped("  one two three four five six", 24) == ["  one two three four", "    five six"]
    assert wrapped("  one two", None) == ["  one two"]
    assert wrapped("  one   two", 11) == ["  one   two"], "a line that fits stays as it is"


def test_the_text_behind_a_label_wraps_beside_it() -> None:
    assert wrapped("  why     one two three four five six", 30) == [
        "  why     one two three four",
        "          five six",
    ]
    assert wrapped("2026-03-01 03:04:20  one two three four", 30) == [
        "2026-03-01 03:04:20  one two",
        "  three four",
    ], "a long label leaves no room beside it"
    assert wrapped("\u65e5\u672c  one two three four five six", 30) == [
        "\u65e5\u672c  one two three four five",
        "      six",
    ]
