// What is searched, kept in the address: a link restores everything, and back and forward work.
import { el } from "./dom.js";

export const PAGE_SIZE = 10;
const SIDE = ["model", "expand", "rerank", "combine"];

const emptySide = () => Object.fromEntries(SIDE.map((name) => [name, ""]));
/** A search without filters, by the index's own model. */
export const plain = () => ({ filters: [], where: "", syntax: "", sort: "", exact: false, page: 1, doc: "", a: emptySide(), b: null });

function fromAddress() {
	const params = new URLSearchParams(location.search);
	const text = (name) => params.get(name) ?? "";
	const side = (prefix) => Object.fromEntries(SIDE.map((name) => [name, text(prefix + name)]));
	return {
		index: text("index"),
		q: text("q"),
		like: text("like"),  // the id of a document: search for others like it
		filters: params.getAll("f").map(readFilter).filter(Boolean),  // chosen values of facets
		where: text("where"),  // a condition in words
		syntax: text("syntax") === "lucene" ? "lucene" : "",  // the language of the query; empty for plain words
		sort: text("sort"),  // a field, with - before it in descending order; empty for the best first
		exact: params.has("exact"),  // the query is searched as it was typed, also if it looks misspelt
		half: false,  // the last word may be half typed; no link is
		page: Math.max(1, Number.parseInt(text("page"), 10) || 1),
		a: side(""),
		b: params.has("compare") ? side("b.") : null,
		doc: text("doc"),
		drawer: params.has("judgements"),
	};
}

function toAddress(state) {
	const params = new URLSearchParams();
	const put = (name, value) => value && params.append(name, value);
	const putSide = (prefix, side) => SIDE.forEach((name) => put(prefix + name, side[name]));
	for (const name of ["index", "q", "like", "where", "syntax", "sort", "doc"]) put(name, state[name]);
	for (const { field, value, filter } of state.filters) put("f", `${encodeURIComponent(field)}=${JSON.stringify(filter ? [value, filter] : value)}`);
	put("exact", state.exact && 1);
	put("page", state.page > 1 && state.page);
	putSide("", state.a);
	put("compare", state.b && 1);
	if (state.b) putSide("b.", state.b);
	put("judgements", state.drawer && 1);
	return params.size ? `?${params}` : location.pathname;
}

function readFilter(text) {
	const at = text.indexOf("=");
	try {
		const read = JSON.parse(text.slice(at + 1));
		const [value, filter] = Array.isArray(read) && typeof read[1] === "string" ? read : [read];  // a bucket has its filter
		return at > 0 && (value === null || typeof value !== "object") && { field: decodeURIComponent(text.slice(0, at)), value, filter };
	} catch {
		return null;
	}
}

let state = fromAddress();
let listener = null;

export const get = () => state;
export const onChange = (f) => { listener = f; };

/** Changes the state. `push` makes a step for the back button; else the current one is rewritten. */
export function change(patch, push = true) {
	const before = state;
	state = { ...state, ...patch };
	const url = toAddress(state);
	if (url !== toAddress(before)) history[push ? "pushState" : "replaceState"](null, "", url);
	listener(state, before);
}

addEventListener("popstate", () => {
	const before = state;
	state = fromAddress();
	listener(state, before);
});

/** A link to the state with other values. A plain click goes there in this page, and then calls `done`. */
export function link(kind, { patch, push = () => true, done, ...props }, ...children) {
	const go = (e) => {
		if (e.metaKey || e.ctrlKey || e.shiftKey || e.button) return;
		e.preventDefault();
		change(patch, push());
		done?.();
	};
	return el(kind, { ...props, href: toAddress({ ...state, ...patch }), onclick: go }, ...children);
}

const PLAIN = /^[\p{L}_][\p{L}\p{N}_-]*(\.[\p{L}\p{N}_-]+)*$/u;
const QUOTED = /^`[^`"]+`$/;
const WORDS = /^(and|or|not|in|exists|true|false|null)$/i;

function condition(field, chosen) {
	const values = chosen.filter((f) => !f.filter).map((f) => f.value);
	if (!values.length) return chosen.map((f) => `(${f.filter})`).join(" or ");
	const name = QUOTED.test(field) || (PLAIN.test(field) && !WORDS.test(field)) ? field : `\`${field}\``;
	const literals = values.map((v) => typeof v === "string" ? `"${v.replace(/["\\]/g, "\\$&")}"` : String(v));
	return literals.length === 1 ? `${name} = ${literals[0]}` : `${name} in [${literals.join(", ")}]`;
}

/** The filter of a search: values of one field are alternatives, fields must all hold. `without` leaves a field out.
 * What was typed is a condition of its own: an error then counts characters in it. */
export function filterOf({ filters, where }, without) {
	const fields = [...new Set(filters.map((f) => f.field))].filter((field) => field !== without);
	const parts = fields.map((field) => condition(field, filters.filter((f) => f.field === field)));
	if (where) parts.push(where);
	return parts.length ? parts : undefined;
}

/** The part of a request that says how one side searches. */
export const sideOf = (side) => Object.fromEntries(Object.entries(side).filter(([, value]) => value));
