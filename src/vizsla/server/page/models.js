// Choosing how to search: a model, with expansion, reranking and combination.
import { button, cut, el, fill, icon } from "./dom.js";
import { change, get } from "./state.js";

export function sideName(side, info) {
	return [side.model || info.model, side.expand && `+ ${side.expand}`, side.rerank && `→ ${side.rerank}`, side.combine && `(${side.combine})`].filter(Boolean).join(" ");
}

let made = 0;

/** A button that opens the list of models. `key` is "a" or "b". */
export function picker(key, info, label) {
	const id = `models-${++made}`;
	const name = sideName(get()[key], info);
	const opener = el("button.button.picker", { type: "button", popovertarget: id, title: name },
		label && el("span.side-mark", label), el("span.sr", "Model "), el("span.mono", cut(name, 200)), icon("chevron"));
	const pop = el("div.popover", { id, popover: "auto", role: "dialog", "aria-label": "Choose a model" });
	pop.addEventListener("beforetoggle", (e) => e.newState === "open" && fillPopover(pop, key, info));
	pop.addEventListener("toggle", (e) => {
		if (e.newState !== "open") return;
		const at = opener.getBoundingClientRect();
		const width = Math.min(420, innerWidth - 24);
		Object.assign(pop.style, {
			width: `${width}px`, left: `${Math.max(12, Math.min(at.left, innerWidth - width - 12))}px`,
			top: `${at.bottom + 6}px`, maxHeight: `${Math.max(200, innerHeight - at.bottom - 24)}px`,
		});
		pop.querySelector("[aria-pressed=true]")?.focus();
	});
	return el("span.picker-holder", opener, pop);
}

function fillPopover(pop, key, info) {
	const side = get()[key];
	const set = (patch) => {
		pop.hidePopover();
		change({ [key]: { ...get()[key], ...patch }, page: 1, ...(patch.rerank && { sort: "" }) });  // a reranker has its own order
	};
	const own = (name) => (name === info.model ? "" : name);
	const known = info.models.some((m) => own(m.name) === side.model);
	const input = el("input.mono", { type: "text", spellcheck: "false", autocapitalize: "off", autocomplete: "off", placeholder: "bm25(k1=1.2, b=0.75)", value: known ? "" : side.model });
	const form = el("form.expression", el("label", "Or an expression", input), el("button.button", "Use"));
	form.addEventListener("submit", (e) => { e.preventDefault(); set({ model: own(input.value.trim()) }); });
	const choice = (name, title, values) => values.length > 0 && el("div.segment", { role: "group", "aria-label": title }, el("span", title),
		["", ...values].map((v) => button(".button", () => set({ [name]: v }), { "aria-pressed": side[name] === v }, v || "default")));
	fill(pop,
		info.models.map((m) => button(".option", () => set({ model: own(m.name) }), { "aria-pressed": own(m.name) === side.model }, el("span.mono", cut(m.name, 80)), m.help && el("small", m.help))),
		form,
		choice("expand", "Query expansion", info.expanders),
		choice("rerank", "Rerank", info.rerankers),
		choice("combine", "Combine parts", info.parts.length > 1 ? ["sum", "union", "rrf"] : []));
}
