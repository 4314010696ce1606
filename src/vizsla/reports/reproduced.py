"""A paper's table with our figures beside the paper's, as an HTML page and as Markdown, from plain data.

A cell without a figure of ours has a number that leads to the reason below the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vizsla.reports.formats import escape_html, escape_markdown
from vizsla.reports.page import html_page

_TINY = (
    "This is a run on a small generated collection with tiny networks. It shows that every step works; its figures "
    "cannot be compared with the paper's, which are left out."
)
_MARKS = {"+": "▲", "-": "▼", "": ""}


def reproduced_markdown(data: Mapping[str, Any]) -> str:
    """The table as Markdown: `ours (the paper's, difference)`, and below it what is missing and why."""
    reasons = _Reasons()
    head = ["", *(escape_markdown(c["name"]) for c in data["columns"])]
    lines = [f"**{data['table']}**: {escape_markdown(data['title'])}.", ""]
    lines += [_TINY, ""] if data["scale"] == "tiny" else []
    lines += ["| " + " | ".join(head) + " |", "|---" + "|---:" * len(data["columns"]) + "|"]
    for row in data["rows"]:
        cells = [_markdown_cell(cell, c, reasons) for cell, c in zip(row["cells"], data["columns"], strict=True)]
        name = f"*{escape_markdown(row['name'])}*" if row["added"] else escape_markdown(row["name"])
        lines.append("| " + " | ".join([name, *cells]) + " |")
    lines += ["", escape_markdown(legend(data)), ""]
    lines += [f"{number}. {escape_markdown(text)}" for text, number in reasons.numbers.items()]
    explained = [(row["name"], row["why"]) for row in data["rows"] if row["why"]]
    lines += (
        ["", *(f"- {escape_markdown(name)}: {escape_markdown(why)}" for name, why in explained)] if explained else []
    )
    quoted = [(row["name"], row["quoted"]) for row in data["rows"] if row["quoted"]]
    lines += (
        ["", *(f"- {escape_markdown(n)}: the paper quotes {escape_markdown(q)}" for n, q in quoted)] if quoted else []
    )
    return "\n".join(lines).rstrip() + "\n"


def reproduced_html(data: Mapping[str, Any]) -> str:
    """The page of a table."""
    reasons = _Reasons()
    head = "<th></th>" + "".join(f'<th class="n">{escape_html(c["name"])}</th>' for c in data["columns"])
    lines = []
    for row in data["rows"]:
        cells = zip(row["cells"], data["columns"], strict=True)
        shown = "".join(f'<td class="n">{_html_cell(cell, c, reasons)}</td>' for cell, c in cells)
        name = f"<i>{escape_html(row['name'])}</i>" if row["added"] else escape_html(row["name"])
        lines.append(f"<tr><td>{name}</td>{shown}</tr>")
    table = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
    why = "".join(f"<li>{escape_html(text)}</li>" for text in reasons.numbers)
    systems = "".join(_html_system(row) for row in data["rows"])
    needs = "".join(f"<li>{escape_html(need_line(need))}</li>" for need in data["needs"])
    sections = [
        ("figures", "Figures", f"<p>{escape_html(legend(data))}</p>{table}"),
        ("missing", "Why a cell has no figure of ours", f"<ol>{why}</ol>" if why else ""),
        ("systems", "What each row runs", f"<ul>{systems}</ul>"),
        ("needs", "What the table needs", f"<ul>{needs}</ul>" if needs else ""),
    ]
    headline = escape_html(data["paper"]) + (f". <b>{escape_html(_TINY)}</b>" if data["scale"] == "tiny" else "")
    shown_sections = [section for section in sections if section[2]]
    return html_page(f"{data['table']}: {data['title']}", headline, shown_sections, data["note"])


def legend(data: Mapping[str, Any]) -> str:
    """How to read a cell, in a few sentences."""
    sentences = ["Ours (the paper's, difference)." if data["scale"] == "full" else "Ours, on a tiny sample."]
    if any(row["added"] for row in data["rows"]):
        sentences.append("Rows in italics are not of the paper.")
    if data["baseline"]:
        sentences.append("▲ and ▼: significantly better or worse than the baseline, paired t-test, p < 0.05.")
    return " ".join([*sentences, *([data["note"]] if data["note"] else [])])


def need_line(need: Mapping[str, Any]) -> str:
    """What a table needs, in a line.

    >>> need_line({"name": "msmarco", "kind": "data", "here": False, "how": "fetch it", "bytes": 3.1e9, "gpu_hours": 0})
    'data msmarco: not here, about 3.1 GB; fetch it'
    """
    size = f"{need['bytes'] / 1e9:.1f} GB" if need["bytes"] >= 1e8 else f"{need['bytes'] / 1e6:.1f} MB"
    hours = f", {need['gpu_hours']:g} GPU hours ({need['source']})" if need["gpu_hours"] else ""
    if need["kind"] == "room":
        return f"room {need['name']}: up to about {size}"
    if need["here"]:
        return f"{need['kind']} {need['name']}: here" + (f", {size}" if need["bytes"] else "")
    about = f", about {size}" if need["bytes"] else ""
    return f"{need['kind']} {need['name']}: not here{about}{hours}; {need['how']}"


class _Reasons:
    """Numbers for distinct reasons, in the order in which they appear."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers) + 1)


def shown_figure(value: float | str | None, digits: int) -> str:
    """A figure as a table shows it.

    >>> shown_figure(0.67891, 3), shown_figure("5 min", 3), shown_figure(5183.0, 0), shown_figure(None, 1)
    ('0.679', '5 min', '5,183', '')
    """
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:,.{digits}f}"


def shown_difference(value: float | None, digits: int) -> str:
    """A difference with its sign, if it is not zero in these digits.

    >>> shown_difference(0.26, 1), shown_difference(-0.04, 1), shown_difference(None, 1)
    ('+0.3', '0.0', '')
    """
    if value is None:
        return ""
    text = f"{value:+,.{digits}f}"
    return text if float(text.replace(",", "")) else f"{0:.{digits}f}"


def _markdown_cell(cell: Mapping[str, Any], column: Mapping[str, Any], reasons: _Reasons) -> str:
    paper = shown_figure(cell["paper"], column["digits"]) + _MARKS[cell["paper_mark"]]
    if cell["ours"] is None:
        number = f"[{reasons.number(cell['reason'])}]"
        return f"{number} ({paper})" if paper else number
    ours = f"**{shown_figure(cell['ours'], column['digits'])}**{_MARKS[cell['mark']]}"
    if cell["difference"] is not None:
        return f"{ours} ({paper}, {shown_difference(cell['difference'], column['digits'])})"
    return f"{ours} ({paper})" if paper else ours


def _html_cell(cell: Mapping[str, Any], column: Mapping[str, Any], reasons: _Reasons) -> str:
    paper = escape_html(shown_figure(cell["paper"], column["digits"]) + _MARKS[cell["paper_mark"]])
    if cell["ours"] is None:
        number = reasons.number(cell["reason"])
        note = f'<span title="{escape_html(cell["reason"])}">[{number}]</span>'
        return f'{note}<br><span class="small">{paper}</span>' if paper else note
    colour = {"+": "up", "-": "down", "": ""}[cell["mark"]]
    mark = f'<sup class="{colour}">{_MARKS[cell["mark"]]}</sup>' if cell["mark"] else ""
    ours = f"<b>{escape_html(shown_figure(cell['ours'], column['digits']))}</b>{mark}"
    if cell["difference"] is not None:
        paper += f" ({shown_difference(cell['difference'], column['digits'])})"
    return f'{ours}<br><span class="small">{paper}</span>' if paper else ours


def _html_system(row: Mapping[str, Any]) -> str:
    parts = [f"<b>{escape_html(row['name'])}</b>"]
    parts += [f"<code>{escape_html(row['system'])}</code>"] if row["system"] else []
    parts += [f"the paper quotes {escape_html(row['quoted'])}"] if row["quoted"] else []
    parts += [escape_html(row["why"])] if row["why"] else []
    return f"<li>{'; '.join(parts)}</li>"
