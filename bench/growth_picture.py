"""The picture of bench/growth.py: milliseconds a query by the number of passages, both in powers of ten."""

from __future__ import annotations

from typing import Any

from vizsla.reports.charts import Axis, number

WIDTH, HEIGHT = 640, 380
LEFT, RIGHT, TOP, BOTTOM = 70, 90, 20, 50
COLOURS = {"10": "#1f6feb", "100": "#d97706", "1000": "#8b3fd9"}
_STYLE = (
    "text{font:12px sans-serif;fill:#444}"
    ".grid{stroke:#e3e3e3}.axis{stroke:#888}polyline{fill:none;stroke-width:2}.rule{stroke-dasharray:4 4;stroke:#bbb}"
)


def picture(rows: list[dict[str, Any]]) -> str:
    """An SVG with a curve for each k. Where one size was measured twice, the one in fewer segments counts."""
    by_size: dict[int, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: -row["segments"]):
        by_size[row["documents"]] = row
    points = [by_size[size] for size in sorted(by_size)]
    x = Axis.fitted([p["documents"] for p in points], LEFT, WIDTH - RIGHT, log=True)
    y = Axis.fitted([p[k] for p in points for k in COLOURS], HEIGHT - BOTTOM, TOP, log=True)
    parts = [*_grid(x, y), *_proportional(points, x, y)]
    for k, colour in COLOURS.items():
        places = [(x.at(p["documents"]), y.at(p[k])) for p in points]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
        parts.append(f'<polyline points="{line}" stroke="{colour}"/>')
        for (a, b), p in zip(places, points, strict=True):
            title = f"{p['documents']:,} {p['kind']} passages, k = {k}: {p[k]:.2f} ms"
            fill = colour if p["kind"] == "real" else "white"
            shape = f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4" fill="{fill}" stroke="{colour}" stroke-width="2">'
            parts.append(f"{shape}<title>{title}</title></circle>")
        end = places[-1]
        parts.append(f'<text x="{end[0] + 10:.1f}" y="{end[1] + 4:.1f}" style="fill:{colour}">k = {k}</text>')
    label = "milliseconds a query by the number of passages"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        f'<style>{_STYLE}</style><rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )


def _grid(x: Axis, y: Axis) -> list[str]:
    parts = []
    for tick in x.ticks():
        at = f"{x.at(tick):.1f}"
        parts.append(f'<line class="grid" x1="{at}" x2="{at}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text x="{at}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{number(tick)}</text>')
    for tick in y.ticks():
        at = f"{y.at(tick):.1f}"
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y.at(tick) + 4:.1f}" text-anchor="end">{number(tick)} ms</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    words = "passages; filled dots: real ones, empty dots: made of them"
    parts.append(f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle">{words}</text>')
    return parts


def _proportional(points: list[dict[str, Any]], x: Axis, y: Axis) -> list[str]:
    """What time proportional to the number of passages would look like."""
    first, last = points[0], points[-1]
    high = min(first["10"] * last["documents"] / first["documents"], y.high)
    end = first["documents"] * high / first["10"]
    start = f'x1="{x.at(first["documents"]):.1f}" y1="{y.at(first["10"]):.1f}"'
    ends = f'{start} x2="{x.at(end):.1f}" y2="{y.at(high):.1f}"'
    text = f'<text x="{x.at(end) - 8:.1f}" y="{y.at(high) + 12:.1f}" text-anchor="end">proportional</text>'
    return [f'<line class="rule" {ends}/>', text]
