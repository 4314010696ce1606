// One document with all its fields, in the panel. In a wide window that is beside the list, where it follows the results.
import { api } from "./api.js";
import { $, button, cut, el, fill, icon, number } from "./dom.js";
import { gradeScale } from "./judging.js";
import { panelKind, showPanel } from "./panel.js";
import { textFields, titleOf, valueNode } from "./results.js";
import { change, get } from "./state.js";

const STEP = 20_000;
const SETTLED = 80;  // milliseconds that a result keeps the focus
let latest = 0;
let timer = null;
let beside = "";  // what lies beside the list: the index, the query and the id
let unwanted = false;  // the reader has closed what lay there

export const wide = matchMedia("(min-width: 1500px)");  // as in the style sheet

export function showDocument(id, info, server) {
	clearTimeout(timer);
	return load(id, info, server, () => change({ doc: "" }, false), "document");
}

/** In a wide window the document of the result with the focus, else of the first one, is shown without being opened.
 * Gives its id, or an empty text if nothing is to be shown. */
export function showBeside(info, server) {
	clearTimeout(timer);
	const { q, b } = get();
	const hit = wide.matches && !unwanted && !b ? document.querySelector(".hit.current") ?? document.querySelector(".hit") : null;
	if (!hit) return "";
	const { id } = hit.dataset;
	const wanted = JSON.stringify([info.name, q, id]);
	const follows = panelKind() === "beside";
	const show = () => {
		beside = wanted;
		load(id, info, server, () => { unwanted = true; markShown(""); }, "beside");
	};
	if (!follows) show();
	else if (beside !== wanted) timer = setTimeout(show, SETTLED);
	return id;
}

/** Says in the list which document is shown. */
export function markShown(id) {
	for (const hit of $("results").querySelectorAll(".hit")) {
		hit.classList.toggle("shown", hit.dataset.id === id);
		hit.querySelector(".title").setAttribute("aria-current", hit.dataset.id === id);
	}
}

/** What is shown stays until the new document is here. */
async function load(id, info, server, onClose, kind) {
	const ticket = ++latest;
	const body = $("panel").querySelector("article") ?? el("article.document", el("p.quiet-text", "Opening …"));
	body.setAttribute("aria-busy", true);
	showPanel("Document", body, onClose, kind);
	const nodes = await api.document(info.name, id).then(({ doc }) => documentNodes(id, doc, info, server), (e) => [el("p.wrong", e.message)]);
	if (ticket !== latest) return;
	fill(body, nodes);
	body.setAttribute("aria-busy", false);
	$("panel").scrollTop = 0;
}

function documentNodes(id, fields, info, server) {
	const texts = textFields(info).filter((name) => textOf(fields[name]));
	const shown = new Set(["id", "title", ...texts]);
	const rest = Object.entries(fields).filter(([name, value]) => !shown.has(name) && value != null);
	const { q } = get();
	return [
		el("h2.doc-title", { dir: "auto" }, cut(titleOf({ id, document: fields }, info), 600)),
		el("dl.facts", el("div", el("dt", "id"), el("dd.mono", cut(id, 400))), rest.map(([name, value]) =>
			el("div", el("dt", cut(name, 80)), el("dd", (Array.isArray(value) ? value.slice(0, 100) : [value]).map((v, i) => [i ? ", " : "", valueNode(v, 2000)]))))),
		server.may_judge && q && gradeScale(id),
		texts.map((name) => [texts.length > 1 && el("h3.field-name", name), longText(textOf(fields[name]))]),
		el("p", button(".button", () => change({ like: id, q: "", page: 1, doc: "" }), icon("similar"), "Similar documents")),
	];
}

/** A text, or a list of texts as one with a line for each; empty for anything else. */
function textOf(value) {
	const lines = [value].flat();
	return lines.every((line) => typeof line === "string") ? lines.join("\n") : "";
}

/** The text with the words marked that the results have marked. */
function withMarks(text) {
	const words = new Set([...document.querySelectorAll("#results mark")].flatMap((m) => m.textContent.toLowerCase().split(/[^\p{L}\p{N}]+/u)));
	return text.split(/([\p{L}\p{N}]+)/u).map((part, i) => (i % 2 && words.has(part.toLowerCase()) ? el("mark", part) : part));
}

/** A long text is shown a piece at a time: megabytes would freeze the page. */
function longText(text) {
	const node = el("div.text", { dir: "auto" });
	let at = 0;
	const more = button(".button", () => show());
	const show = () => {
		let end = Math.min(at + STEP, text.length);
		if (end < text.length && /[\uD800-\uDBFF]/.test(text[end - 1])) end -= 1;
		more.remove();
		for (const paragraph of text.slice(at, end).split(/\n\s*\n/)) node.append(el("p", { dir: "auto" }, withMarks(paragraph)));
		at = end;
		if (at < text.length) {
			more.textContent = `Show more: ${number(text.length - at)} characters are left`;
			node.append(more);
		}
	};
	show();
	return node;
}
