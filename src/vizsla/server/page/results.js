// One result, and a list of them.
import { button, cut, el, icon, marked, meter, number, score } from "./dom.js";
import { toggleExplanation } from "./explain.js";
import { toggleFilter } from "./facets.js";
import { gradeButtons } from "./judging.js";
import { change, get, linkTo } from "./state.js";

const TITLE = 220;
const SNIPPET = 600;
const CHIPS = 4;
const WEB = /^https?:\/\//i;

/** The fields that are read as text, other than the title. */
export const textFields = (info) => (info.fields ?? []).filter((f) => f !== "title");

/** The first of: the title, the first line of the text, the id. */
export function titleOf(hit, info) {
  const fields = hit.document ?? {};
  if (typeof fields.title === "string" && fields.title.trim()) return fields.title.trim();
  for (const name of textFields(info)) {
    const text = fields[name];
    if (typeof text === "string" && text.trim()) return text.slice(0, 4000).trim().split("\n", 1)[0];
  }
  return hit.id;
}

function titleNodes(hit, info) {
  const shown = hit.highlights?.title;
  if (shown?.matches?.length && shown.at_start && shown.at_end && shown.text.length <= TITLE) return marked(shown.text, shown.matches);
  return [cut(titleOf(hit, info), TITLE)];
}

function snippetNode(hit, info) {
  const all = textFields(info).map((name) => [name, hit.highlights?.[name]]).filter(([, h]) => h?.text);
  const [, best] = all.find(([, h]) => h.matches.length) ?? all[0] ?? [];
  if (!best) {
    const text = textFields(info).map((name) => hit.document?.[name]).find((t) => typeof t === "string" && t);
    return text ? el("p.snippet", { dir: "auto" }, cut(text, 260)) : null;
  }
  const points = Array.from(best.text.slice(0, 4 * SNIPPET));
  const long = points.length > SNIPPET;
  const text = long ? points.slice(0, SNIPPET).join("") : best.text;
  return el("p.snippet", { dir: "auto" }, best.at_start ? "" : "… ", marked(text, best.matches.filter(([, e]) => e <= SNIPPET)), best.at_end && !long ? "" : " …");
}

/** A value of metadata: http(s) addresses are links, all else is text. */
export function valueNode(value, length = 60) {
  if (typeof value === "string" && WEB.test(value) && value.length < 2000) {
    const short = cut(value.replace(WEB, "").replace(/\/$/, ""), length);
    return el("a", { href: value, target: "_blank", rel: "noopener noreferrer" }, short);
  }
  return el("bdi", cut(typeof value === "object" ? JSON.stringify(value) : value, length));
}

function chips(hit, info) {
  const facets = info.facets ?? [];
  const skip = new Set(["title", ...(info.fields ?? [])]);
  const fields = Object.entries(hit.document ?? {}).filter(([name, value]) => {
    if (skip.has(name) || value == null || value === "") return false;
    return Array.isArray(value) ? value.length && value.every((v) => typeof v !== "object") : typeof value !== "object";
  });
  const place = (name) => (facets.includes(name) ? facets.indexOf(name) : 1000);
  fields.sort(([a], [b]) => place(a) - place(b));
  return fields.slice(0, CHIPS).map(([name, value]) => {
    const values = (Array.isArray(value) ? value : [value]).slice(0, 3);
    return el("span.chip", el("span.key", cut(name, 30)), values.map((v) =>
      facets.includes(name)
        ? button("", () => toggleFilter(name, v, true), { title: `Only documents with ${name} ${cut(v, 60)}` }, el("bdi", cut(v, 40)))
        : valueNode(v, 40)));
  });
}

/** A result. `ctx`: info, side ("a" or "b"), best score, request (what explains it), move (a badge), grades. */
export function hitNode(hit, ctx) {
  const { info, best } = ctx;
  const link = el("a.title", {
    href: linkTo({ doc: hit.id }), dir: "auto",
    onclick: (e) => {
      if (e.metaKey || e.ctrlKey || e.shiftKey || e.button) return;
      e.preventDefault();
      change({ doc: hit.id, drawer: false }, !get().doc);
    },
  }, titleNodes(hit, info));
  const body = el("div.body",
    el("div.head", el("h3", link),
      el("div.score", { title: `Score ${hit.score}` }, el("span.sr", "Score "), score(hit.score), meter(best > 0 ? hit.score / best : 0))),
    snippetNode(hit, info));
  const node = el("article.hit", { data: { id: hit.id, side: ctx.side } },
    el("div.rank", { title: `Rank ${hit.rank}` }, number(hit.rank), ctx.move ?? null), body);
  const why = ctx.request.like ? null : button(".quiet.why", () => toggleExplanation(node, why, hit, ctx), { "aria-expanded": false, title: "Why is it here? (e)" }, icon("why"), "Why");
  body.append(el("div.foot-row",
    el("span.mono", { title: "id" }, cut(hit.id, 60), hit.passage != null ? ` · passage ${number(hit.passage + 1)}` : null),
    el("div.meta", chips(hit, info)),
    el("div.actions", why, ctx.judging ? gradeButtons(hit.id) : null)));
  return node;
}

/** The results of one side as a list. */
export function listNode(answer, ctx) {
  const best = Math.max(...answer.hits.map((h) => h.score));
  return el("div.list", { role: "list" }, answer.hits.map((hit) => {
    const node = hitNode(hit, { ...ctx, best, move: ctx.moves?.(hit) });
    node.setAttribute("role", "listitem");
    return node;
  }));
}
