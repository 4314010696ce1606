// One result, and a list of them.
import { button, cut, el, icon, marked, meter, number, score } from "./dom.js";
import { toggleExplanation } from "./explain.js";
import { bare, toggleFilter } from "./facets.js";
import { gradeButtons } from "./judging.js";
import { get, link } from "./state.js";

const TITLE = 220;
const HEADING = 100;  // of a text that has no title
const SNIPPET = 600;
const CHIPS = 4;
const WEB = /^https?:\/\//i;

/** The fields that are read as text, other than the title. */
export const textFields = (info) => info.fields.filter((f) => f !== "title");

const firstLine = (text) => (typeof text === "string" ? text.slice(0, 4000).trim().split("\n", 1)[0] : "");

/** The first of: the title, the beginning of the text, the id. */
export function titleOf(hit, info) {
	const title = firstLine(hit.document.title);
	if (title) return title;
	const text = textFields(info).map((name) => firstLine(hit.document[name])).find(Boolean);
	return text === undefined ? hit.id : cut(text, HEADING).replace(/\s+\S{0,24}…$/, " …");
}

function titleNodes(hit, info) {
	const shown = hit.highlights?.title;
	if (shown?.at_start && shown.at_end && shown.text.length <= TITLE) return marked(shown.text, shown.matches);
	return [cut(titleOf(hit, info), TITLE)];
}

function snippetNode(hit, info) {
	const all = textFields(info).map((name) => hit.highlights?.[name]).filter((h) => h?.text);
	const best = all.find((h) => h.matches.length) ?? all[0];
	if (!best) return null;
	const points = Array.from(best.text.slice(0, 4 * SNIPPET));
	const long = points.length > SNIPPET;
	const text = long ? points.slice(0, SNIPPET).join("") : best.text;
	return el("p.snippet", { dir: "auto" }, best.at_start ? "" : "… ", marked(text, best.matches.filter(([, e]) => e <= SNIPPET)), best.at_end && !long ? "" : " …");
}

/** A value of metadata: http(s) addresses are links, all else is text. */
export function valueNode(value, length) {
	if (typeof value === "string" && WEB.test(value) && value.length < 2000) {
		const short = cut(value.replace(WEB, "").replace(/\/$/, ""), length);
		return el("a", { href: value, target: "_blank", rel: "noopener noreferrer" }, short);
	}
	return el("bdi", cut(typeof value === "object" ? JSON.stringify(value) : value, length));
}

function chips(hit, info) {
	const facets = new Map(info.facets.map((field) => [bare(field), field]));
	const names = Object.keys(hit.document).filter((name) => name !== "title" && !info.fields.includes(name));
	const first = bare(get().sort.replace(/^-/, ""));
	return [...new Set([...(names.includes(first) ? [first] : []), ...facets.keys(), ...names])].slice(0, 40).map((name) => {
		const values = (Object.hasOwn(hit.document, name) ? [hit.document[name]].flat() : []).filter((v) => v != null && v !== "" && v !== hit.id && typeof v !== "object").slice(0, 3);
		return values.length > 0 && el("span.chip", el("span", cut(name, 30)), values.map((v) =>
			facets.has(name)
				? button("", () => toggleFilter(facets.get(name), v, true), { title: `Only documents with ${name} ${cut(v, 60)}` }, el("bdi", cut(v, 40)))
				: valueNode(v, 40)));
	}).filter(Boolean).slice(0, CHIPS);
}

/** A result. `ctx`: info, side ("a" or "b"), request (what explains it), moves (gives a badge), judging. */
function hitNode(hit, best, ctx) {
	const { info } = ctx;
	const title = link("a.title", { patch: { doc: hit.id, drawer: false }, push: () => !get().doc, dir: "auto" }, titleNodes(hit, info));
	const body = el("div.body",
		el("div.head", el("h3", title),
			el("div.score", { title: `Score ${hit.score}` }, el("span.sr", "Score "), score(hit.score), meter(hit.score / best))),
		snippetNode(hit, info));
	const node = el("article.hit", { data: { id: hit.id, side: ctx.side } },
		el("div.rank", { title: `Rank ${hit.rank}` }, number(hit.rank), ctx.moves?.(hit)), body);
	const why = ctx.request.like ? null : button(".quiet.why", () => toggleExplanation(node, why, hit, ctx), { "aria-expanded": false, title: "Why is it here? (e)" }, icon("why"), "Why");
	body.append(el("div.foot-row",
		el("span.mono", { title: "id" }, cut(hit.id, 60), hit.passage != null && ` · passage ${number(hit.passage + 1)}`),
		el("div.meta", chips(hit, info)),
		el("div.actions", why, ctx.judging && gradeButtons(hit.id))));
	return node;
}

/** The results of one side. */
export function hitNodes({ hits }, ctx) {
	const best = Math.max(...hits.map((h) => h.score));
	return hits.map((hit) => hitNode(hit, best, ctx));
}
