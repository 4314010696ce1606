"""Charts as inline SVG and HTML; they scale to a phone, use the colours of the page, and can be printed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vizsla.reports.formats import escape_html

WIDTH, HEIGHT = 420, 300
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 12, 40
LONGEST_LABEL, LONGEST_TITLE = 28, 42  # characters that fit


class Axis(NamedTuple):
    """Maps numbers to positions along an axis; `log` for latencies and sizes."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    @classmethod
    def fitted(cls, values: Sequence[float], start: float, end: float, *, log: bool = False) -> Axis:
        """An axis that holds all values with some space at both ends."""
        low, high = min(values, default=0.0), max(values, default=1.0)
        if log:
            return cls(max(low, 1e-9) / 1.6, max(high, 1e-9) * 1.6, start, end, True)
        air = (high - low) * 0.12 or max(abs(high) * 0.1, 0.01)
        return cls(low - air, high + air, start, end)

    def at(self, value: float) -> float:
        low, high, v = self.low, self.high, value
        if self.log:
            low, high, v = np.log(low), np.log(high), np.log(max(value, 1e-9))
        return float(self.start + (v - low) / (high - low) * (self.end - self.start))

    def ticks(self, about: int = 5) -> list[float]:
        if self.log:
            return _log_ticks(self.low, self.high)
        step = 10.0 ** np.floor(np.log10((self.high - self.low) / about))
        step = next(step * m for m in (1, 2, 5, 10) if (self.high - self.low) / (step * m) <= about)
        first = int(np.ceil(self.low / step))
        return [round(i * step, 10) for i in range(first, int(np.floor(self.high / step)) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    exponents = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks = [m * 10.0**e for e in exponents for m in (1, 2, 5) if low <= m * 10.0**e <= high]
    return ticks if len(ticks) <= 6 else [t for t in ticks if f"{t:e}".startswith("1")]


def number(value: float) -> str:
    """A number as people read it: 0.42, 12, 1,300, 1.3 M."""
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:.3g} M"
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def shortened(text: str, most: int) -> str:
    """A name truncated to a length; tables and tooltips show it in full.

    >>> shortened("bm25", 8), shortened("bm25 + 0.5 * bm25-wp", 8)
    ('bm25', 'bm25 + …')
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(kind: str, x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape_html(text)}</text>'


def _circle(x: float, y: float, radius: float, colour: int, title: str) -> str:
    place = f'cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"'
    return f'<circle class="c{colour}" {place}><title>{escape_html(title)}</title></circle>'


def _frame(x: Axis, y: Axis, x_title: str, y_title: str) -> list[str]:
    parts = []
    for t in x.ticks():
        parts.append(_line("grid", x.at(t), TOP, x.at(t), HEIGHT - BOTTOM))
        parts.append(_text("tick", x.at(t), HEIGHT - BOTTOM + 15, number(t)))
    for t in y.ticks():
        parts.append(_line("grid", LEFT, y.at(t), WIDTH - RIGHT, y.at(t)))
        parts.append(_text("tick", LEFT - 6, y.at(t) + 4, number(t), "end"))
    parts.append(_text("axis", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, shortened(x_title, LONGEST_TITLE)))
    turned = f"translate(12 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)"
    parts.append(f'<g transform="{turned}">{_text("axis", 0, 0, shortened(y_title, LONGEST_TITLE))}</g>')
    return parts


def svg(parts: Sequence[str], label: str, width: float = WIDTH, height: float = HEIGHT) -> str:
    """A drawing with a label for screen readers."""
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape_html(label)}">{"".join(parts)}</svg>'
    )


class Dot(NamedTuple):
    """A point of a scatter plot."""

    x: float
    y: float
    title: str
    colour: int = 0
    radius: float = 3.5
    label: str = ""


def scatter(
    dots: Sequence[Dot], x_title: str, y_title: str, label: str, *, log_x: bool = False, diagonal: bool = False
) -> str:
    """Points in a frame; `diagonal` draws the line of equal values and gives both axes the same range."""
    if diagonal:
        every = [v for d in dots for v in (d.x, d.y)]
        x, y = (Axis.fitted(every, a, z) for a, z in ((LEFT, WIDTH - RIGHT), (HEIGHT - BOTTOM, TOP)))
    else:
        x = Axis.fitted([d.x for d in dots], LEFT, WIDTH - RIGHT, log=log_x)
        y = Axis.fitted([d.y for d in dots], HEIGHT - BOTTOM, TOP)
    parts = _frame(x, y, x_title, y_title)
    if diagonal:
        a, z = max(x.low, y.low), min(x.high, y.high)
        parts.append(_line("even", x.at(a), y.at(a), x.at(z), y.at(z)))
    taken: list[tuple[float, float]] = []
    for d in sorted(dots, key=lambda d: -d.radius):
        cx, cy = x.at(d.x), y.at(d.y)
        parts.append(_circle(cx, cy, d.radius, d.colour, d.title))
        if d.label:
            parts.append(_label(d, cx, cy, taken))
    return svg(parts, label)


def _label(d: Dot, cx: float, cy: float, taken: list[tuple[float, float]]) -> str:
    """A name beside a point, on the side with more space, not on top of another name."""
    left = cx > WIDTH * 0.6
    tx, ty = (cx - d.radius - 4, cy + 4) if left else (cx + d.radius + 4, cy + 4)
    while any(abs(ty - y) < 13 and abs(tx - x) < 110 for x, y in taken) and ty < HEIGHT - BOTTOM - 4:
        ty += 13
    taken.append((tx, ty))
    return _text("name", tx, ty, shortened(d.label, LONGEST_LABEL), "end" if left else "start")


class Curve(NamedTuple):
    """A line through points, from left to right."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int = 0


def curves(lines: Sequence[Curve], x_title: str, y_title: str, label: str, *, log_x: bool = False) -> str:
    """Lines in a frame, each with its name where it begins."""
    every = [point for line in lines for point in line.points]
    x = Axis.fitted([px for px, _ in every], LEFT, WIDTH - RIGHT, log=log_x)
    y = Axis.fitted([py for _, py in every], HEIGHT - BOTTOM, TOP)
    parts = _frame(x, y, x_title, y_title)
    taken: list[tuple[float, float]] = []
    for line in lines:
        places = [(x.at(px), y.at(py)) for px, py in line.points]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
        parts.append(f'<polyline class="curve c{line.colour}" points="{path}"/>')
        for (px, py), (cx, cy) in zip(line.points, places, strict=True):
            parts.append(_circle(cx, cy, 2.5, line.colour, f"{line.name}: {number(py)} at {number(px)}"))
        if places:
            cx, cy = places[0]
            rises = places[min(1, len(places) - 1)][1] < cy
            beside = cy + 16 if rises else cy - 9  # not where the line goes
            parts.append(_label(Dot(cx, cy, line.name, line.colour, label=line.name), cx, beside, taken))
    return svg(parts, label)


class Box(NamedTuple):
    """A distribution: five quantiles (5, 25, 50, 75, 95%) and the number of values."""

    name: str
    quantiles: tuple[float, ...]
    size: int
    colour: int = 0

    @classmethod
    def of(cls, name: str, values: Sequence[float], colour: int = 0) -> Box:
        quantiles = np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95)).tolist() if len(values) else [0.0] * 5
        return cls(name, tuple(quantiles), len(values), colour)


def boxes(rows: Sequence[Box], x_title: str, label: str) -> str:
    """Box plots, one below the other: the box covers the middle 50% of the values, the line the middle 90%."""
    step, name_room = 34, 14
    height = TOP + len(rows) * step + BOTTOM
    x = Axis.fitted([0.0, *(q for row in rows for q in row.quantiles)], 12, WIDTH - RIGHT)
    parts = []
    for t in x.ticks():
        if t >= 0:
            parts.append(_line("grid", x.at(t), TOP, x.at(t), height - BOTTOM))
            parts.append(_text("tick", x.at(t), height - BOTTOM + 15, number(t)))
    for i, row in enumerate(rows):
        y = TOP + i * step
        low, first, middle, third, high = (x.at(q) for q in row.quantiles)
        centre = y + name_room + 8
        title = f"{row.name}: {', '.join(map(number, row.quantiles))} (5, 25, 50, 75, 95% of {row.size:,})"
        box = f'<rect x="{first:.1f}" y="{centre - 6}" width="{max(third - first, 1):.1f}" height="12" rx="2"/>'
        inside = _line("whisker", low, centre, high, centre) + box
        inside += _line("median", middle, centre - 7, middle, centre + 7)
        parts.append(_text("name", 12, y + 11, shortened(row.name, LONGEST_TITLE), "start"))
        parts.append(f'<g class="c{row.colour}"><title>{escape_html(title)}</title>{inside}</g>')
    parts.append(_text("axis", WIDTH / 2, height - 6, x_title))
    return svg(parts, label, WIDTH, height)


class Bar(NamedTuple):
    """A difference from the baseline."""

    name: str
    value: float
    mark: str
    title: str
    colour: int


def difference_bars(groups: Sequence[tuple[str, Sequence[Bar]]], unit: str) -> str:
    """Bars to the right for positive and to the left for negative differences, as HTML that wraps like text."""
    most = max((abs(b.value) for _, bars in groups for b in bars), default=0.0) or 1.0
    out = ['<div class="bars">']
    for name, bars in groups:
        out.append(f'<div class="group"><h4>{escape_html(name)}</h4>')
        for b in bars:
            share = 50 * abs(b.value) / most
            side = f"left:50%;width:{share:.2f}%" if b.value >= 0 else f"left:{50 - share:.2f}%;width:{share:.2f}%"
            out.append(
                f'<div class="row" title="{escape_html(b.title)}"><span class="who">{escape_html(b.name)}</span>'
                f'<span class="track"><span class="bar b{b.colour}" style="{side}"></span></span>'
                f'<span class="what">{b.value:+.4f}<b>{escape_html(b.mark)}</b></span></div>'
            )
        out.append("</div>")
    out.append(f'</div><p class="small">{escape_html(unit)}</p>')
    return "".join(out)


def heat_map(names: Sequence[str], matrix: np.ndarray) -> str:
    """A table of similarities, darker where higher."""
    head = "".join(f'<th scope="col"><span>{escape_html(n)}</span></th>' for n in names)
    rows = []
    for i, name in enumerate(names):
        cells = []
        for j in range(len(names)):
            share = float(matrix[i, j])
            tone = 'class="deep"' if share > 0.6 else ""
            cells.append(f'<td {tone} style="--heat:{share:.3f}">{share:.2f}</td>')
        rows.append(f'<tr><th scope="row">{escape_html(name)}</th>{"".join(cells)}</tr>')
    table = f"<thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="wide"><table class="heat">{table}</table></div>'


def plane(names: Sequence[str], places: np.ndarray, label: str) -> str:
    """Names at points in the plane; only distances have a meaning, so there are no axes."""
    reach = max(float(np.abs(places).max(initial=0.0)), 1e-9)
    x, y = Axis(-reach, reach, 70, WIDTH - 70), Axis(-reach, reach, HEIGHT - 24, 20)
    parts: list[str] = []
    taken: list[tuple[float, float]] = []
    for name, (px, py) in zip(names, places.tolist(), strict=True):
        dot = Dot(px, py, name, 1, 4, name)
        parts.append(_circle(x.at(px), y.at(py), 4, 1, name))
        parts.append(_label(dot, x.at(px), y.at(py), taken))
    return svg(parts, label)
