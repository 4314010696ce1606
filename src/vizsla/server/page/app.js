// Starts the page and connects its parts: each change of the address is drawn here.
import { api } from "./api.js";
import { markShown, showBeside, showDocument, wide } from "./document.js";
import { $, button, cut, el, fill, icon, number, toast } from "./dom.js";
import { bare, drawActive, drawFacets, drawRail, showWhere, toggleRail } from "./facets.js";
import { showDrawer, useIndex } from "./judging.js";
import { drawSyntaxLine, showHelp } from "./help.js";
import { setUpKeyboard } from "./keyboard.js";
import { picker } from "./models.js";
import { closePanel, panelKind } from "./panel.js";
import { run, stop } from "./search.js";
import { change, get, onChange, plain } from "./state.js";
import { showError, showWelcome } from "./states.js";
import { setUpSuggestions } from "./suggest.js";

const TYPING = 160;
let server = null;
let info = null;
let typing = false;  // the query is being typed: its steps are one step for the back button
let suggestions = null;

function setUpBar() {
	const input = $("query");
	let timer = null;
	const commit = (value, push, whole) => {
		clearTimeout(timer);
		const q = value.trim();
		const half = !whole && value.trimEnd() === value;
		const before = get();
		if (q !== before.q || half !== before.half || before.like) change({ q, half, exact: q === before.q && before.exact, like: "", page: 1, doc: "" }, push);
		else if (!typing) draw(get(), null);
	};
	input.addEventListener("input", () => {
		$("clear").hidden = !input.value;
		clearTimeout(timer);
		if (server?.limits?.prefer_enter && input.value.trim()) return;
		timer = setTimeout(() => { commit(input.value, !typing); typing = true; }, TYPING);
	});
	input.addEventListener("blur", () => { typing = false; });
	$("form").addEventListener("submit", (e) => {
		e.preventDefault();
		suggestions.close();
		const push = !typing;  // what was found while typing is the same step
		typing = false;
		commit(input.value, push, true);
	});
	$("clear").addEventListener("click", () => { input.value = ""; commit("", true); input.focus(); });
	$("brand").addEventListener("click", (e) => {
		if (e.metaKey || e.ctrlKey) return;
		e.preventDefault();
		input.value = "";
		change({ ...plain(), q: "", like: "", drawer: false });
		input.focus();
	});
	suggestions = setUpSuggestions(() => info.name, (value) => { commit(value, !typing); typing = true; });
	$("index").addEventListener("change", () => change({ ...plain(), index: $("index").value }));
}

function setUpTools() {
	$("theme").addEventListener("click", () => {
		const root = document.documentElement;
		const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
		root.dataset.theme = dark ? "light" : "dark";
		try { localStorage.setItem("vizsla-theme", root.dataset.theme); } catch { /* then it lasts until the page is left */ }
	});
	$("help").addEventListener("click", () => showHelp("Keyboard"));
	$("share").addEventListener("click", async () => {
		try {
			await navigator.clipboard.writeText(location.href);
			toast("Link copied");
		} catch {
			toast("Copy the address of this page: it holds the whole search");
		}
	});
	$("judging").addEventListener("click", () => (panelKind() === "drawer" ? closePanel() : change({ drawer: true, doc: "" })));
}

function drawControls(state) {
	const other = info.models?.find((m) => m.name !== (state.a.model || info.model))?.name ?? "";
	const compare = button(".button", () => change({ b: get().b ? null : { ...plain().a, model: other }, page: 1, doc: "" }),
		{ id: "compare", "aria-pressed": Boolean(state.b), title: "Two models side by side (c)" }, icon("compare"), state.b ? "One model" : "Compare");
	const filters = button(".button.rail-button", toggleRail, { id: "filters", title: "Filters (f)" }, icon("filter"), "Filters", el("span.badge", { id: "filter-count" }));
	const syntax = button(".button", () => change({ syntax: get().syntax ? "" : "lucene", page: 1, doc: "" }),
		{ id: "syntax", "aria-pressed": Boolean(state.syntax), title: 'Read +must, -not, "phrases", title:words and prefix* as Lucene does' }, "Query syntax");
	fill($("controls"), state.b ? null : [picker("a", info), sorting(state)], filters, syntax, compare);
	drawSyntaxLine(state, info);
}

/** The order of the results; a reranker has its own. */
function sorting(state) {
	const names = info.sort_fields ?? [];
	if (state.a.rerank || (!names.length && !state.sort)) return null;
	const all = ["", ...names.flatMap((name) => [name, `-${name}`])];
	if (!all.includes(state.sort)) all.push(state.sort);  // from a link
	const called = (value) => !value ? "Best first" : value.startsWith("-") ? `${cut(bare(value.slice(1)), 40)}, descending` : `${cut(bare(value), 40)}, ascending`;
	const list = el("select", { id: "sort", "aria-label": "Order of the results", onchange: () => change({ sort: list.value, page: 1, doc: "" }) },
		all.map((value) => el("option", { value, selected: value === state.sort }, called(value))));
	return el("label.button.choice", { title: "Order of the results (s)" }, list, icon("chevron"));
}

/** Draws what the state says. Only a change of what is searched starts a search. */
function draw(state, before) {
	if (!server) return;
	const chosen = server.indexes.find((i) => i.name === state.index) ?? server.indexes[0];
	if (chosen !== info) {
		info = chosen;
		useIndex(info);
		drawRail(info);
		$("index").value = info.name;
	}
	const searching = Boolean(state.q || state.like);
	document.body.dataset.view = searching ? "results" : "home";
	document.body.classList.toggle("comparing", Boolean(state.b));
	placeRail();
	document.title = state.q ? `${cut(state.q, 80)} · ${info.name} · Vizsla` : "Vizsla";
	// A change of something else leaves a query alone that is being typed, or waits for its search.
	const typed = before ? before.q === state.q : $("query") === document.activeElement && $("query").value;
	if (!typed && $("query").value.trim() !== state.q) $("query").value = state.q;
	$("query").placeholder = info.documents ? `Search ${number(info.documents)} documents` : "Search";
	$("clear").hidden = !$("query").value;
	showWhere(state.where, "");
	drawControls(state);
	drawActive(state);
	const searched = (!before || searchKey(state) !== searchKey(before)) && search(state, searching);
	if (before) drawPanel(state, before);
	else Promise.resolve(searched).then(followResults);  // a document shows the marks of the results
}

// A click needs the button that was pressed: what changes in between, as when a field loses the focus, is drawn after it.
let pressed = false;
let late = null;  // the state before changes that are not drawn yet

function drawWhenReleased(state, before) {
	late ??= before;
	if (!pressed) drawLate();
}

function drawLate() {
	const before = late;
	late = null;
	if (before) draw(get(), before);
}

function setUpPresses() {
	addEventListener("pointerdown", (e) => { pressed = Boolean(e.target.closest("button, a")); }, true);
	for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { pressed = false; setTimeout(drawLate); }, true);
}

/** On narrow pages the filters are a sheet that is opened. */
function placeRail() {
	document.body.classList.toggle("rail-sheet", innerWidth <= (get().b ? 1400 : 1000));
}

const searchKey = ({ doc, drawer, ...rest }) => JSON.stringify(rest);

function search(state, searching) {
	if (info.status === "unavailable") {
		stop();
		fill($("results"));
		return showError({ status: 503, message: info.reason ?? `The index ${info.name} cannot be searched now.` }, start);
	}
	if (searching) return run(state, info, server);
	stop();
	fill($("notice"));
	fill($("spelling"));
	fill($("results"));
	fill($("count"));
	fill($("pager"));
	drawFacets();
	document.body.classList.remove("stale");
	showWelcome(info, server);
}

function drawPanel(state, before) {
	if (state.doc) {
		if (before.doc !== state.doc || before.index !== state.index || before.q !== state.q || panelKind() !== "document") showDocument(state.doc, info, server);
	} else if (state.drawer) {
		if (panelKind() !== "drawer" || JSON.stringify([before.a, before.b, before.index]) !== JSON.stringify([state.a, state.b, state.index])) showDrawer();
	}
	const shown = state.doc || (!state.drawer && showBeside(info, server));
	if (!shown && !state.drawer) closePanel(true);
	markShown(shown);
}

/** The panel shows what fits the results, the result with the focus, and the width of the window. */
function followResults() {
	if (info) drawPanel(get(), get());
}

let attempts = 0;
async function start() {
	try {
		server = await api.indexes();
	} catch (e) {
		if (e.offline) setTimeout(start, Math.min(8000, 500 * 2 ** attempts++));
		return showError(e, start);
	}
	fill($("notice"));
	info = null;
	$("version").textContent = `Vizsla ${server.vizsla}`;
	$("judging").hidden = !server.judging;
	if (!server.indexes.length) return showError({ status: 503, message: "This server has no index." }, start);
	fill($("index"), server.indexes.map((i) => el("option", { value: i.name, disabled: i.status === "unavailable" }, cut(i.name, 40))));
	$("scope").classList.toggle("only", server.indexes.length === 1);
	document.body.classList.add("started");
	const { index } = get();
	if (index && !server.indexes.some((i) => i.name === index)) toast(`There is no index ${cut(index, 40)} here`);
	draw(get(), null);
	if (document.body.dataset.view === "home") $("query").focus();
}

for (const [id, shape] of Object.entries({ judging: "judge", share: "link", theme: "theme", help: "help", clear: "close", go: "search", scope: "chevron" })) $(id).append(icon(shape));
setUpBar();
setUpTools();
setUpKeyboard();
setUpPresses();
onChange(drawWhenReleased);
addEventListener("resize", placeRail);
wide.addEventListener("change", followResults);
document.addEventListener("focusin", followResults);
new MutationObserver(followResults).observe($("results"), { childList: true });
start();
