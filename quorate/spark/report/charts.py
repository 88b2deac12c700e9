"""Matplotlib charts as SVG for embedding in the page, without inline styles, for wide screens and for phones.

The page's policy forbids ``style=`` attributes and external fonts, and the page is dark or light as its
reader prefers. So every colour here is a stand-in for a class of the style sheet (`STAND_INS`), text stays
text, and the styles that matplotlib writes become attributes. Each chart also describes itself in words
(``label``), since no information may be in a picture alone.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree as ET

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from history.pages.frame import shortened
from history.render import duration

WIDTHS_INCHES = {"wide": 10.0, "narrow": 4.4}
"""Each chart is drawn for both, since text that shrinks with a chart cannot be read; the page shows one."""
HEIGHT_INCHES = 2.6
COLOURS = 7
STAND_INS = {
    **{f"#0000c{place}": ("fill", f"c{place}") for place in range(COLOURS)},
    **{f"#0000d{place}": ("stroke", f"s{place}") for place in range(COLOURS)},
    "#00aa00": ("stroke", "axis"),
    "#00aa01": ("stroke", "axis soft"),
}
"""Stand-in colour -> the SVG attribute it may appear in, and the class that replaces it."""
AXIS, GRID = "#00aa00", "#00aa01"
TICKS_PER_INCH = 0.9
STEPS_PER_INCH = 1.4
"""Labels below a histogram, which are shorter."""
LETTERS_PER_INCH = 4
"""Letters of a name beside a bar."""
DURATION_TICKS_MS = (
    *(1, 10, 100, 300, 1_000, 3_000, 10_000, 30_000, 60_000, 300_000, 1_800_000),
    *(3_600_000, 6 * 3_600_000, 86_400_000, 10 * 86_400_000, 100 * 86_400_000, 1_000 * 86_400_000),
)
"""Ticks of a logarithmic axis of durations."""
_SVG, _LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "quorate",  # equal figures give equal bytes
    "font.size": 9,
    "text.parse_math": False,  # two dollar signs in a name are no formula
    "axes.edgecolor": AXIS,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": AXIS,
    "ytick.color": AXIS,
    "grid.color": GRID,
}


def stacked_bars(series: Sequence[tuple[str, Mapping[int, int]]], *, names: Sequence[str], label: str) -> str:
    """A bar chart of counts by period, with the series stacked; ``names`` are those of the periods."""

    def draw(axes: Axes) -> None:
        below = [0] * len(names)
        for place, (_, counts) in enumerate(series):
            there = [period for period in range(len(names)) if counts.get(period)]
            heights = [counts[period] for period in there]
            bottoms = [below[period] for period in there]
            axes.bar(there, heights, bottom=bottoms, width=0.9, color=_colour(place))
            for period in there:
                below[period] += counts[period]
        _period_axis(axes, names)
        axes.set_ylim(0, max(1, max(below, default=1)) * 1.05)

    return _chart(draw, label)


def line(counts: Mapping[int, float], *, names: Sequence[str], label: str, colour: int = 0) -> str:
    """One number by period, as an area."""

    def draw(axes: Axes) -> None:
        heights: list[float] = [counts.get(period, 0) for period in range(len(names))]
        edges = [place - 0.5 for place in range(len(names) + 1)]
        filled = [*heights, heights[-1]]
        axes.fill_between(edges, filled, step="post", color=_colour(colour), linewidth=0)
        _period_axis(axes, names)
        axes.set_ylim(0, (max(heights) or 1) * 1.05)

    return _chart(draw, label)


def durations(series: Sequence[Mapping[int, float]], *, names: Sequence[str], label: str) -> str:
    """Durations (ms) by period on a logarithmic axis: a line and points for each series."""

    def draw(axes: Axes) -> None:
        for place, values in enumerate(series):
            there = sorted(values)
            heights = [max(1, values[period]) for period in there]
            stroke = f"#0000d{place}"
            axes.plot(there, heights, color=stroke, linewidth=1.6, marker="o", markersize=2.5)
        _period_axis(axes, names)
        every = [max(1.0, value) for values in series for value in values.values()]
        low, high = min(every) / 1.5, max(every) * 1.5
        axes.set_yscale("log")
        axes.set_ylim(low, high)
        ticks = [float(one) for one in DURATION_TICKS_MS if low <= one <= high] or [min(every)]
        axes.set_yticks(ticks, [_short(one) for one in ticks])
        axes.set_yticks([], minor=True)

    return _chart(draw, label, counts=False)


def histogram(counts: Mapping[int, int], edges: Sequence[int], *, label: str) -> str:
    """A histogram by upper edges in ms, from the first with any to the last."""
    first, last = edges.index(min(counts)), edges.index(max(counts))
    shown = edges[max(0, first - 1) : last + 2]

    def draw(axes: Axes) -> None:
        places = range(len(shown))
        axes.bar(places, [counts.get(edge, 0) for edge in shown], width=0.85, color=_colour(0))
        every = -(-len(shown) // _room(axes, STEPS_PER_INCH))
        ticks = list(places)[::every]
        axes.set_xticks(ticks, [f"≤ {_short(shown[place])}" for place in ticks])

    return _chart(draw, label)


def sparkline(counts: Mapping[int, int], periods: int) -> str:
    """A count by period, as small as a word; the numbers are told beside it."""
    most = max(counts.values(), default=1)
    path = "".join(f"V{20 - round(19 * counts.get(place, 0) / most)}h1" for place in range(periods))
    return (
        f'<svg class="spark" viewBox="0 0 {periods} 20" preserveAspectRatio="none" aria-hidden="true">'
        f'<path class="c0" d="M0 20{path}V20z"/></svg>'
    )


def bars(rows: Sequence[tuple[str, float]], *, label: str, unit: str) -> str:
    """Horizontal bars, the first row on top."""

    def draw(axes: Axes) -> None:
        places = range(len(rows))
        axes.barh(places, [value for _, value in rows], height=0.75, color=_colour(0))
        letters = _room(axes, LETTERS_PER_INCH)
        axes.set_yticks(list(places), [shortened(name, letters) for name, _ in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlabel(unit)
        axes.xaxis.set_major_formatter(_number)
        axes.locator_params(axis="x", nbins=5)  # labels may have ten digits
        axes.grid(axis="x", linewidth=0.6)
        axes.set_axisbelow(True)

    return _chart(draw, label, height=max(HEIGHT_INCHES / 2, 0.7 + 0.26 * len(rows)), has_grid=False)


def _room(axes: Axes, per_inch: float) -> int:
    """The number of labels that have room on the width of a chart."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    return int(figure.get_figwidth() * per_inch)


def _number(value: float, _place: float = 0) -> str:
    """A tick label: 30,000,000 rather than 3.0 with a 1e7 elsewhere."""
    return f"{value:,.10g}"


def _short(span_ms: float) -> str:
    """A duration without a needless ``.0``."""
    return duration(span_ms).replace(".0 s", " s")


def _colour(place: int) -> str:
    return f"#0000c{place % COLOURS}"


def _period_axis(axes: Axes, names: Sequence[str]) -> None:
    every = -(-len(names) // _room(axes, TICKS_PER_INCH))
    ticks = range(0, len(names), every)
    axes.set_xticks(list(ticks), [names[place] for place in ticks])
    axes.set_xlim(-0.5, len(names) - 0.5)


def _chart(
    draw: Callable[[Axes], None],
    label: str,
    *,
    height: float = HEIGHT_INCHES,
    has_grid: bool = True,
    counts: bool = True,
) -> str:
    made = []
    with mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        # text is only measured here: the browser has the fonts
        warnings.filterwarnings("ignore", "Glyph .* missing")
        for width, inches in WIDTHS_INCHES.items():
            figure = Figure(figsize=(inches, height), layout="constrained")
            axes = figure.add_subplot()
            if has_grid:
                axes.grid(axis="y", linewidth=0.6)
                axes.set_axisbelow(True)
            if has_grid and counts:
                axes.yaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
                axes.yaxis.set_major_formatter(_number)
            draw(axes)
            file = io.BytesIO()
            figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
            made.append(_for_page(file.getvalue(), label, width))
    return "".join(made)


def _for_page(svg: bytes, label: str, width: str) -> str:
    """The SVG without styles and without parts that only a standalone file needs."""
    root = ET.fromstring(svg)
    kept = {found for one in root.iter() for found in _references(one)}
    name = re.sub(r"\W+", "-", label.lower())[:40]
    salt = f"{width}-{name}"
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):
                parent.remove(child)
    for one in root.iter():
        one.tag = one.tag.removeprefix(f"{{{_SVG}}}")
        _restyle(one)
        _rename(one, kept, salt)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("class", f"chart {width}")
    root.set("role", "img")
    root.set("aria-label", label)
    return ET.tostring(root, encoding="unicode").replace("xlink:href", "href").replace("ns1:href", "href")


def _references(one: ET.Element) -> list[str]:
    found = [match[1] for value in one.attrib.values() for match in _REFERENCE.finditer(value)]
    link = one.get(f"{{{_LINK}}}href", "")
    return [*found, link[1:]] if link.startswith("#") else found


def _restyle(one: ET.Element) -> None:
    """Turn styles into attributes and colours into classes."""
    classes: list[str] = []
    for rule in one.attrib.pop("style", "").split(";"):
        name, _, value = (part.strip() for part in rule.partition(":"))
        if value in STAND_INS:
            attribute, class_ = STAND_INS[value]
            if name == attribute:
                classes.append(class_)
        elif name and name != "font-family":
            one.set(name, value)
    if classes:
        one.set("class", " ".join(classes))


def _rename(one: ET.Element, kept: set[str], salt: str) -> None:
    """Keep only the ids that are referenced, prefixed with the chart's name."""
    if "id" in one.attrib:
        if one.attrib["id"] in kept:
            one.set("id", f"{salt}-{one.attrib['id']}")
        else:
            del one.attrib["id"]
    for name, value in list(one.attrib.items()):
        if name == f"{{{_LINK}}}href" and value.startswith("#"):
            del one.attrib[name]
            one.set("href", f"#{salt}-{value[1:]}")
        else:
            one.set(name, _REFERENCE.sub(lambda found: f"url(#{salt}-{found[1]})", value))
