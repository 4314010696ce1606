"""A comparison as one HTML page without other files: figures, charts, examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources

import vizsla
from vizsla.datasets import BeirDataset
from vizsla.evaluation.domains import domain_map, similarity_matrix
from vizsla.evaluation.significance import Difference
from vizsla.evaluation.systems import Comparison
from vizsla.models import Model
from vizsla.reports import charts
from vizsla.reports.dataset_details import SHOWN, TOP_K, DatasetDetails, collect_details, marked_text, sampled
from vizsla.reports.formats import escape_html
from vizsla.reports.tables import best_of, legend, rows, summary_legend, summary_rows
from vizsla.runs import Measure

COLOURS = 8


def html_report(
    c: Comparison,
    datasets: Sequence[BeirDataset],
    models: Mapping[str, Model],
    title: str = "Comparison of retrieval systems",
) -> str:
    """The page of a comparison: figures and significance first, then speed, charts by query and examples."""
    several = len(datasets) > 1
    details = [collect_details(c, d, vocabulary=several) for d in datasets]
    sections = [
        ("figures", "Figures", _figures(c)),
        ("differences", f"Differences from {c.baseline}", _differences(c)),
        ("cost", "Quality, speed and size", _cost(c)),
        ("queries", "Query by query", _queries(c, details)),
        ("lengths", "Lengths of the documents found", _lengths(c, details)),
        ("domains", "Similarity of the collections", _domains(details) if several else ""),
        ("examples", "Examples", _examples(c, details, models)),
    ]
    shown = [(key, name, body) for key, name, body in sections if body]
    return html_page(title, _headline(c), shown, _legend(c))


def html_page(title: str, headline: str, sections: Sequence[tuple[str, str, str]], foot: str) -> str:
    """A page of sections, each with its key, its name and its body; the headline and the bodies are HTML."""
    links = "".join(f'<a href="#{key}">{escape_html(name)}</a>' for key, name, _ in sections)
    body = "".join(f'<section id="{key}"><h2>{escape_html(name)}</h2>{text}</section>' for key, name, text in sections)
    style = resources.files("vizsla.reports").joinpath("style.css").read_text("utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape_html(title)}</title><style>{style}</style></head><body><main>"
        f"<header><h1>{escape_html(title)}</h1><p>{headline}</p><nav>{links}</nav></header>{body}"
        f'<footer class="small"><p>Made by Vizsla {vizsla.__version__}. {escape_html(foot)}</p></footer>'
        "</main></body></html>\n"
    )


def html_table(head: list[str], rows: list[list[tuple[str, bool]]]) -> str:
    """A table of cells, the best of them bold; numbers after the first column."""
    numbers = "".join(f'<th class="n">{escape_html(name)}</th>' for name in head[1:])
    names = f"<th>{escape_html(head[0])}</th>{numbers}"
    lines = []
    for (first, _), *cells in rows:
        shown = (f'<td class="n{" best" if best else ""}">{escape_html(cell)}</td>' for cell, best in cells)
        lines.append(f"<tr><td>{escape_html(first)}</td>{''.join(shown)}</tr>")
    body = "".join(lines)
    return f'<div class="wide"><table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table></div>'


def _headline(c: Comparison) -> str:
    """The main result, in a sentence."""
    measure = c.measures[0]
    sign = -1 if Measure.parse(measure).lower_is_better else 1
    whole = [s for s in c.systems if c.is_complete(s)]
    best = max(whole, key=lambda s: sign * c.mean(s, measure))
    where = c.rows[0] if len(c.rows) == 1 else f"{len(c.rows)} data sets"
    if len(c.systems) == 1:
        figure = f"{escape_html(measure)} {c.mean(best, measure):.4f}"
        return f"<b>{escape_html(best)}</b> reaches {figure} on {escape_html(where)}."
    others = ", ".join(f"{escape_html(s)} {c.mean(s, measure):.4f}" for s in whole if s != best)
    mean = " on average" if len(c.rows) > 1 else ""
    figure = f"{escape_html(measure)} {c.mean(best, measure):.4f}{mean}"
    remark = ""
    if not any(c.mark(d, s, measure) for d in c.datasets for s in c.systems):
        remark = f" No difference from {escape_html(c.baseline)} is significant."
    return f"Best on {escape_html(where)}: <b>{escape_html(best)}</b> with {figure} ({others}).{remark}"


def _legend(c: Comparison) -> str:
    return legend(c).replace("; + significantly better, - significantly", "; ▲ significantly better, ▼ significantly")


def _colour(c: Comparison, system: str) -> int:
    return c.systems.index(system) % COLOURS


def _figures(c: Comparison) -> str:
    head = "".join(f'<th class="n">{escape_html(s)}</th>' for s in c.systems)
    lines = []
    for name, measure, *cells in rows(c):
        shown = []
        for cell, best in zip(cells, best_of(measure, cells), strict=True):
            plain = cell.rstrip("+-")
            mark = {"+": '<sup class="up">▲</sup>', "-": '<sup class="down">▼</sup>'}.get(cell[-1], "")
            shown.append(f'<td class="n{" best" if best and len(cells) > 1 else ""}">{plain}{mark}</td>')
        kind = ' class="mean"' if name == "mean" else ""
        lines.append(f"<tr{kind}><td>{escape_html(name)}</td><td>{escape_html(measure)}</td>{''.join(shown)}</tr>")
    for name, measure, *cells in summary_rows(c):
        shown = [f'<td class="n">{cell}</td>' for cell in cells]
        lines.append(f"<tr><td>{escape_html(name)}</td><td>{escape_html(measure)}</td>{''.join(shown)}</tr>")
    return (
        f'<div class="wide"><table><thead><tr><th>data set</th><th>measure</th>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
        f'<p class="small">{escape_html(_legend(c))} The best figure of a row is bold. {summary_legend(c)}</p>'
    )


def _differences(c: Comparison) -> str:
    if len(c.systems) < 2:
        return ""
    measure, groups = c.measures[0], []
    for dataset in c.datasets:
        bars = []
        for system, (d, p) in c.differences(dataset, measure).items():
            mark = {"+": " ▲", "-": " ▼"}.get(c.mark(dataset, system, measure), "")
            title = f"{_wins(d)}; p = {p:.3g}; effect size {_effect(d)}"
            bars.append(charts.Bar(system, d.mean, mark, title, _colour(c, system)))
        groups.append((dataset, bars))
    return charts.difference_bars(groups, f"{measure} minus {measure} of {c.baseline}; ▲▼: significant") + _tests(c)


def _wins(d: Difference) -> str:
    return f"{d.wins} queries higher, {d.ties} equal, {d.losses} lower"


def _effect(d: Difference) -> str:
    return "-" if d.effect is None else f"{d.effect:+.2f}"


def _tests(c: Comparison) -> str:
    """All significance tests, with confidence intervals and p-values."""
    lines = []
    for dataset in c.datasets:
        for measure in c.measures:
            for system, (d, p) in c.differences(dataset, measure).items():
                interval = "{:+.4f} to {:+.4f}".format(*d.interval) if d.interval else "-"
                cells = (f"{d.mean:+.4f}", interval, f"{d.wins} / {d.ties} / {d.losses}", _effect(d), f"{p:.3g}")
                shown = "".join(f'<td class="n">{cell}</td>' for cell in cells)
                names = "".join(f"<td>{escape_html(n)}</td>" for n in (dataset, measure, system))
                lines.append(f"<tr>{names}{shown}</tr>")
    head = "".join(f"<th>{h}</th>" for h in ("data set", "measure", "system"))
    head += "".join(
        f'<th class="n">{h}</th>'
        for h in ("difference", "95% interval", "higher / equal / lower", "effect size", "corrected p")
    )
    return (
        f"<details><summary>All tests</summary><div class=wide><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div></details>"
    )


def _cost(c: Comparison) -> str:
    measure, cards = c.measures[0], []
    for dataset in c.datasets:
        known = [s for s in c.systems if c.has(dataset, s) and "bytes" in c.results[dataset, s].facts]
        if not known:
            continue
        facts = {s: c.results[dataset, s].facts for s in known}
        most = max(f["bytes"] for f in facts.values()) or 1
        dots = []
        for s in known:
            f, value = facts[s], c.value(dataset, s, measure)
            title = f"{s}: {measure} {value:.4f}, {f['milliseconds']:.2f} ms, {f['bytes'] / 1e6:.1f} MB"
            radius = 4 + 10 * (f["bytes"] / most) ** 0.5
            dots.append(charts.Dot(f["milliseconds"], value, title, _colour(c, s), radius, s))
        drawn = charts.scatter(dots, "milliseconds per query (log)", measure, f"{measure} by latency", log_x=True)
        lines = "".join(
            f'<tr><td>{escape_html(s)}</td><td class="n">{facts[s]["milliseconds"]:.2f} ms</td>'
            f'<td class="n">{facts[s]["bytes"] / 1e6:.1f} MB</td></tr>'
            for s in known
        )
        cards.append(
            f'<figure><h3>{escape_html(dataset)}</h3>{drawn}<div class="wide"><table>{lines}</table></div></figure>'
        )
    if not cards:
        return ""
    note = (
        "Latency is the median of single queries for ten results, with one thread, from text to ids. "
        "The area of a dot grows with the size of the index, without stored documents."
    )
    if any(r.cached for r in c.results.values()):
        note += " Some latencies come from the cache: they were measured earlier."
    return f'<div class="cards">{"".join(cards)}</div><p class="small">{note}</p>'


def _queries(c: Comparison, details: Sequence[DatasetDetails]) -> str:
    if len(c.systems) < 2:
        return ""
    measure, cards = c.measures[0], []
    for m in details:
        name = m.dataset.name
        base = c.results[name, c.baseline].evaluation.by_query[measure]
        for system in (s for s in c.systems[1:] if c.has(name, s)):
            other = c.results[name, system].evaluation.by_query[measure]
            colour, both = _colour(c, system), [q for q in base if q in other]
            titles = {q: f"{m.queries.get(q, q)}: {base[q]:.3f} to {other[q]:.3f}" for q in both}
            dots = [charts.Dot(base[q], other[q], titles[q], colour, 3) for q in both]
            axes = (f"{measure}, {c.baseline}", f"{measure}, {system}", f"{system} by query")
            drawn = charts.scatter(dots, *axes, diagonal=True)
            d, _ = c.differences(name, measure)[system]
            head = f"<h3>{escape_html(name)}: {escape_html(system)}</h3>"
            cards.append(f"<figure>{head}{drawn}<figcaption>{_wins(d)}</figcaption></figure>")
    note = f"Each dot is a query. Above the line the system is better than {c.baseline}."
    return f'<div class="cards">{"".join(cards)}</div><p class="small">{escape_html(note)}</p>'


def _lengths(c: Comparison, details: Sequence[DatasetDetails]) -> str:
    cards = []
    for m in details:
        boxes = [charts.Box.of("all documents", sampled(m.corpus_lengths), COLOURS - 1)]
        boxes += [charts.Box.of(s, sampled(m.found_lengths[s]), _colour(c, s)) for s in m.found_lengths]
        drawn = charts.boxes(boxes, "words", f"Lengths of documents found on {m.dataset.name}")
        cards.append(f"<figure><h3>{escape_html(m.dataset.name)}</h3>{drawn}</figure>")
    note = (
        f"The first {TOP_K} documents of every query. The box covers the middle 50% of them, the line the middle 90%."
    )
    return f'<div class="cards">{"".join(cards)}</div><p class="small">{note}</p>'


def _domains(details: Sequence[DatasetDetails]) -> str:
    names = [m.dataset.name for m in details]
    matrix = similarity_matrix([m.term_shares for m in details])
    heat = charts.heat_map(names, matrix)
    note = "Weighted Jaccard similarity of terms, by Lucene's English analyzer, with more than 0.01% of a collection."
    drawn = ""
    if len(names) > 2:
        picture = charts.plane(names, domain_map(matrix), "A map of the collections")
        drawn = f"<figure>{picture}<figcaption>Similar collections are close together.</figcaption></figure>"
    return f'<figure>{heat}</figure><p class="small">{note}</p><div class="cards">{drawn}</div>'


def _examples(c: Comparison, details: Sequence[DatasetDetails], models: Mapping[str, Model]) -> str:
    out = []
    for m in details:
        for system, queries in m.examples.items():
            if queries:
                out.append(f"<h3>{escape_html(m.dataset.name)}: {escape_html(system)}</h3>")
                out += [_example(c, m, system, q, models) for q in queries]
    note = f"The queries whose {c.measures[0]} differs most from {c.baseline}, better or worse."
    return f'<p class="small">{escape_html(note)}</p>{"".join(out)}' if out else ""


def _example(c: Comparison, m: DatasetDetails, system: str, query: str, models: Mapping[str, Model]) -> str:
    measure, name = c.measures[0], m.dataset.name
    before, after = (c.results[name, s].evaluation.by_query[measure][query] for s in (c.baseline, system))
    way = "up" if after > before else "down"
    columns = "".join(_ranking(c, m, s, query, models.get(s)) for s in (c.baseline, system))
    return (
        f"<details><summary>{escape_html(m.queries.get(query, query))} "
        f'<span class="delta {way}">{before:.2f} → {after:.2f}</span></summary>'
        f'<div class="pair">{columns}</div></details>'
    )


def _ranking(c: Comparison, m: DatasetDetails, system: str, query: str, model: Model | None) -> str:
    run = c.results[m.dataset.name, system].run
    items = []
    for doc_id in run[query].documents[:SHOWN] if query in run else []:
        document = m.documents.get(doc_id)
        grade = m.qrels.judgements[query].get(doc_id)
        word = "not judged" if grade is None else "relevant" if grade > 0 else "not relevant"
        word += f" ({grade})" if grade is not None and grade > 1 else ""
        badge = f'<span class="grade{" yes" if grade and grade > 0 else ""}">{word}</span>'
        if document is None:
            items.append(f"<li><b>{escape_html(doc_id)}</b> {badge}</li>")
            continue
        heading = document.get("title") or doc_id
        text = marked_text(m.queries.get(query, ""), document, model)
        items.append(f"<li><b>{escape_html(str(heading))}</b> {badge}<p>{text}</p></li>")
    listed = "".join(items) or "<li>nothing found</li>"
    return f"<div><h4>{escape_html(system)}</h4><ol>{listed}</ol></div>"
