// One document with all its fields, in the panel.
import { api } from "./api.js";
import { button, cut, el, fill, icon, number } from "./dom.js";
import { gradeScale } from "./judging.js";
import { showPanel } from "./panel.js";
import { textFields, titleOf, valueNode } from "./results.js";
import { change, get } from "./state.js";

const STEP = 20_000;
let latest = 0;

export async function showDocument(id, info, server) {
	const ticket = ++latest;
	const body = el("article.document", el("p.quiet-text", "Opening …"));
	showPanel("Document", body, () => change({ doc: "" }, false), "document");
	try {
		const { doc } = await api.document(info.name, id);
		if (ticket !== latest) return;
		fill(body, ...documentNodes(id, doc, info, server));
	} catch (e) {
		if (ticket === latest) fill(body, el("p.wrong", e.message));
	}
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
