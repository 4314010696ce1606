// Runs the searches of a state: drops late answers, says when it is slow, tries again when the server is away.
import { api } from "./api.js";
import { DEPTH, compareNodes } from "./compare.js";
import { $, cut, el, fill, icon, number, plural } from "./dom.js";
import { drawFacets, showWhere } from "./facets.js";
import { loadGrades } from "./judging.js";
import { hitNodes, textFields } from "./results.js";
import { PAGE_SIZE, filterOf, link, sideOf } from "./state.js";
import { noResults, showError, showUnknownWords } from "./states.js";

const SLOW = 300;
const AFTER = 120;
const VALUES = 7;
let running = null;
let retryTimer = null;
let failures = 0;
let tab = "a";

export function stop() {
	running?.abort();
	clearTimeout(retryTimer);
	waiting(false);
}

function waiting(on) {
	document.body.classList.toggle("slow", on);
	$("results").setAttribute("aria-busy", on);
}

export async function run(state, info, server) {
	stop();
	const { signal } = (running = new AbortController());
	const slow = setTimeout(waiting, SLOW, true);
	try {
		await (state.b ? runCompare : runOne)(state, info, server, signal);
		failures = 0;
		fill($("notice"));
		document.body.classList.remove("stale");
	} catch (e) {
		if (!signal.aborted) failed(e, state, info, server);
	} finally {
		clearTimeout(slow);
		if (!signal.aborted) waiting(false);
	}
}

function failed(e, state, info, server) {
	if (e.status === undefined) throw e;  // a mistake of the page itself
	const again = () => run(state, info, server);
	const later = e.offline ? Math.min(8000, 500 * 2 ** failures++) : e.wait <= 5 && 1000 * e.wait;
	if (later) retryTimer = setTimeout(again, later);
	document.body.classList.add("stale");
	showError(e, again);
	if (e.status === 400 && state.where && /filter|field|document/i.test(e.message)) showWhere(state.where, e.message);
}

/** What both sides of a search share. */
const common = (state, info) => ({ ...(state.like ? { like: state.like } : queryOf(state, info)), filter: filterOf(state) });
const queryOf = ({ q, syntax, half }, { words }) => ({ query: q, ...(syntax ? { syntax } : half && words && { syntax: "typing" }) });
/** What is done about typing errors: nothing while typing. */
const spelling = ({ half, exact, like }, info) => (info.words && !half && !like ? { typos: exact ? "suggest" : "on" } : {});
const offset = (state) => (state.page - 1) * PAGE_SIZE;
const highlight = (info) => ({ fields: [...new Set([...(info.fields.includes("title") ? ["title"] : []), ...textFields(info)])], width: 260 });
const context = (key, state, info, server) => ({ info, side: key, judging: server.may_judge && state.q, request: { ...common(state, info), ...sideOf(state[key]) } });

async function ask(info, body, signal) {
	const answer = await api.search(info.name, body, signal);
	signal.throwIfAborted();
	return { ...answer.results[0], took: answer.took_ms };
}

async function runOne(state, info, server, signal) {
	const ctx = context("a", state, info, server);
	const page = await ask(info, { ...ctx.request, ...(state.sort && { sort: state.sort }), k: PAGE_SIZE + 1, offset: offset(state), highlight: highlight(info), ...spelling(state, info) }, signal);
	const searched = drawSpelling(state, page);
	if (page.corrected) Object.assign(ctx, { request: { ...ctx.request, query: searched.q }, judging: false });  // judgements are of what was typed
	const more = page.hits.length > PAGE_SIZE;  // one more than is shown: is there a next page?
	page.hits.length = Math.min(page.hits.length, PAGE_SIZE);
	const shown = page.hits.length;
	fill($("results"), shown ? hitNodes(page, ctx) : noResults(searched, info, signal));
	finish(searched, info, server, signal, { shown, more, took: page.took, total: page.total ?? (more ? null : offset(state) + shown) });
}

async function runCompare(state, info, server, signal) {
	const both = async (key) => {
		const ctx = context(key, state, info, server);
		const [page, ranking] = await Promise.all([
			ask(info, { ...ctx.request, k: PAGE_SIZE, offset: offset(state), highlight: highlight(info), ...spelling({ ...state, exact: true }, info) }, signal),
			ask(info, { ...ctx.request, k: DEPTH, fields: [] }, signal),
		]);
		return { page, ctx, ranks: new Map(ranking.hits.map((h) => [h.id, h.rank])) };
	};
	const [a, b] = await Promise.all([both("a"), both("b")]);
	drawSpelling(state, a.page);
	fill($("results"), compareNodes({ a, b }, info, tab, (key) => { tab = key; }));
	const shown = Math.max(a.page.hits.length, b.page.hits.length);
	finish(state, info, server, signal, { shown, more: shown === PAGE_SIZE, took: a.page.took + b.page.took, total: null });
}

/** Says what may be meant, or what was searched instead; gives the state that was searched. */
function drawSpelling(state, { did_you_mean: meant, corrected }) {
	const query = (q, exact) => link("a", { patch: { q, page: 1, doc: "", exact }, dir: "auto" }, cut(q, 200));
	fill($("spelling"),
		corrected && ["Showing results for ", el("b", { dir: "auto" }, cut(corrected, 200)), ". Search instead for ", query(state.q, true), "."],
		meant && ["Did you mean ", query(meant, false), "?"]);
	return corrected ? { ...state, q: corrected } : state;
}

/** What follows the results: counts and pages, then facets, grades, and words that are nowhere. */
function finish(state, info, server, signal, found) {
	showCount(state, found);
	drawPager(state, found.more);
	setTimeout(() => {
		if (signal.aborted) return;
		countFacets(state, info, signal, found).catch(() => signal.aborted || drawFacets());
		if (server.judging && state.q && !state.half) loadGrades(info.name, state.q).catch(() => {});
		if (state.q && !state.syntax && !state.half && found.shown) showUnknownWords($("unknown"), info, state.q, signal);
	}, AFTER);
}

async function countFacets(state, info, signal, found) {
	// To a dense model every document is a match: only the top can be counted.
	const model = state.a.model || info.model;
	const over = info.parts.some((part) => part.kind === "dense" && model.includes(part.name)) ? DEPTH : "all";
	const count = (fields, without, size = VALUES) => ask(info, { ...common(state, info), filter: filterOf(state, without), ...sideOf({ model: state.a.model }), k: 0, facets: { fields, over, size } }, signal);
	const chosen = info.facets.filter((field) => state.filters.some((f) => f.field === field));
	// Values of a filtered field are counted without that filter: they are its alternatives.
	const [all, ...own] = await Promise.all([count(info.facets), ...chosen.map((field) => count([field], field))]);
	const facets = Object.assign({}, all.facets, ...own.map((o) => o.facets));
	for (const { field, value, filter } of state.filters) {
		const values = facets[field]?.values;
		if (values?.every((v) => v.value !== value)) values.push({ value, count: 0, filter });
	}
	const draw = () => drawFacets(facets, all.facets_over, async (field) => {
		Object.assign(facets, (await count([field], field, 100)).facets);
		facets[field].all = Boolean(facets[field].values[0]?.filter);
		draw();
	});
	draw();
	if (all.facets_over.exact) showCount(state, { ...found, total: found.total ?? all.facets_over.documents });
}

function showCount(state, { shown, total, took }) {
	const range = `${number(offset(state) + 1)}–${number(offset(state) + shown)}`;
	const text = !shown ? "No results" : total === null ? `Results ${range}` : total > shown ? `${range} of ${plural(total, "result")}` : plural(total, "result");
	fill($("count"), el("b", text), ` in ${number(took, took < 10 ? 1 : 0)} ms`, $("unknown") ?? el("span", { id: "unknown" }));
}

function drawPager(state, more) {
	const done = () => { scrollTo(0, 0); $("results").focus({ preventScroll: true }); };
	const step = (id, page, ...text) => link("a.button", { patch: { page, doc: "" }, done, id }, text);
	fill($("pager"), state.page > 1 ? step("page-back", state.page - 1, icon("back"), "Previous") : el("span"),
		el("span.quiet-text", (state.page > 1 || more) && `Page ${number(state.page)}`),
		more ? step("page-next", state.page + 1, "Next", icon("next")) : el("span"));
}
