// What the page says without results: the first visit, nothing found, something wrong.
import { api } from "./api.js";
import { $, button, cut, el, fill, number, plural } from "./dom.js";
import { clearFilters } from "./facets.js";
import { change, get, plain } from "./state.js";

const size = (bytes) => bytes >= 1e9 ? `${number(bytes / 1e9, 1)} GB` : bytes >= 1e6 ? `${number(bytes / 1e6)} MB` : `${number(Math.max(1, bytes / 1e3))} kB`;

function facts(info) {
	const passages = info.passages == null ? "" : ` in ${plural(info.passages, "passage")}`;
	const bytes = info.index_bytes == null ? "" : ` · ${size(info.index_bytes + info.document_bytes)}`;
	return `${plural(info.documents, "document")}${passages}${bytes}`;
}

/** The first visit: what can be searched here, and a few words to try. */
export async function showWelcome(info, server) {
	const words = el("div.try");
	fill($("welcome"),
		server.indexes.length > 1
			? el("div.shelf", server.indexes.map((i) => button(".card", () => { change({ ...plain(), index: i.name }); $("query").focus(); }, { "aria-pressed": i.name === info.name }, el("b", cut(i.name, 60)), el("span", i.status !== "unavailable" ? facts(i) : i.reason ?? "cannot be searched now"), el("span.mono", cut(i.model ?? "", 60)))))
			: el("p.about", el("b", cut(info.name, 60)), ` · ${facts(info)} · `, el("span.mono", cut(info.model, 80))),
		words);
	try {
		// The longest of the frequent words with some first letters tell most.
		const lists = await Promise.all([..."dgmptv"].map((letter) => api.suggest(info.name, letter, 16)));
		const longest = lists.map((l) => l.suggestions.map((s) => s.text).sort((a, b) => b.length - a.length)[0]).filter((w) => w?.length > 4);
		if (longest.length) fill(words, el("span", "Try"), longest.map((w) => button(".button", () => change({ q: w, page: 1 }), w)));
	} catch { /* the words are a help only */ }
}

/** Whether a word is in a document, as its terms tell; where all of them are pieces, a piece that is nowhere tells. */
function isKnown(terms) {
	const whole = terms.filter((t) => !t.is_piece);
	return whole.length ? whole.some((t) => t.documents) : terms.every((t) => t.documents);
}

/** Which words of the query are in no document. */
async function unknownWords(info, query, signal) {
	const { terms } = await api.terms(info.name, query, signal);
	const words = new Map(terms.flatMap((t) => t.words).map((word) => [word, terms.filter((t) => t.words.includes(word))]));
	return [...words].filter(([, of]) => !isKnown(of)).map(([word]) => word);
}

const quoted = (words) => words.slice(0, 6).map((w, i) => [i ? ", " : "", el("b", `“${cut(w, 40)}”`)]);

export function showUnknownWords(node, info, query, signal) {
	unknownWords(info, query, signal).then((words) => {
		if (!signal.aborted && words.length) fill(node, quoted(words), words.length === 1 ? " is in no document." : " are in no document.");
	}, () => {});
}

export function noResults(state, info, signal) {
	const words = el("p");
	const filtered = Boolean(state.filters.length || state.where);
	if (state.q && !state.syntax && !state.half) showUnknownWords(words, info, state.q, signal);
	return el("div.empty", el("h2", state.page > 1 ? "No more results." : "Nothing found."), words,
		filtered && el("p", "Filters are active. ", button(".button", clearFilters, "Search without filters")),
		state.page > 1 && el("p", button(".button", () => change({ page: 1 }), "Back to the first page")),
		!filtered && state.page === 1 && el("p.quiet-text", "Try other or fewer words."));
}

/** Something went wrong: the server's own sentence, and what can be done. */
export function showError(error, retry) {
	const { filters, where, sort, a, b } = get();
	const chosen = [a, b].some((side) => side && Object.values(side).some(Boolean));
	const wrong = error.status === 400;
	const [problem, ...place] = error.message.split("\n");  // a mistake in a query is shown in its place
	fill($("notice"), el("div.notice", { role: "alert" },
		el("p", el("b", error.offline ? "Cannot reach the server. " : ""), error.offline ? "Trying again …" : sentence(problem)),
		place.length > 0 && el("pre.place", place.join("\n")),
		el("div.row",
			!wrong && button(".button", retry, { id: "retry" }, "Try again"),
			wrong && Boolean(filters.length || where) && button(".button", clearFilters, "Search without filters"),
			wrong && sort && button(".button", () => change({ sort: "", page: 1 }), "Show the best first"),
			wrong && chosen && button(".button", () => change({ a: plain().a, b: b && plain().a, page: 1 }), "Use the index's own model"))));
}

function sentence(text) {
	const shown = cut(text, 500);
	return shown.replace(/^[a-z](?=[a-z]* )/, (c) => c.toUpperCase()) + (/[.!?…]$/.test(shown) ? "" : ".");
}
