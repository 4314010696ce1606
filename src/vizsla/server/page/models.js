// Choosing how to search: a model of the index, or an expression, with expansion, reranking and combination.
import { cut, el, icon } from "./dom.js";
import { change, get } from "./state.js";

export function sideName(side, info) {
  const extra = [side.expand && `+ ${side.expand}`, side.rerank && `→ ${side.rerank}`, side.combine && `(${side.combine})`].filter(Boolean);
  return [side.model || info.model, ...extra].join(" ");
}

let made = 0;

/** A button that opens the list of models. `key` is "a" or "b". */
export function picker(key, info, label) {
  const id = `models-${++made}`;
  const side = get()[key];
  const button = el("button.picker", { type: "button", popovertarget: id, "aria-haspopup": "dialog", data: { side: key }, title: sideName(side, info) },
    label ? el("span.side-mark", {}, label) : null, el("span.sr", {}, "Model "), el("span.mono", {}, cut(sideName(side, info), 60)), icon("chevron"));
  const pop = el("div.popover", { id, popover: "auto", role: "dialog", "aria-label": "Choose a model" });
  pop.addEventListener("beforetoggle", (e) => { if (e.newState === "open") fillPopover(pop, key, info); });
  pop.addEventListener("toggle", (e) => {
    if (e.newState !== "open") return;
    place(pop, button);
    pop.querySelector("[aria-checked=true], input, button")?.focus();
  });
  return el("span.picker-holder", {}, button, pop);
}

function place(pop, button) {
  const at = button.getBoundingClientRect();
  const width = Math.min(420, innerWidth - 24);
  pop.style.width = `${width}px`;
  pop.style.left = `${Math.max(12, Math.min(at.left, innerWidth - width - 12))}px`;
  pop.style.top = `${at.bottom + 6}px`;
  pop.style.maxHeight = `${Math.max(200, innerHeight - at.bottom - 24)}px`;
}

function fillPopover(pop, key, info) {
  const side = get()[key];
  const set = (patch) => { pop.hidePopover(); change({ [key]: { ...get()[key], ...patch }, page: 1 }); };
  const own = (name) => (name === info.model ? "" : name);
  const options = info.models?.length ? info.models : [{ name: info.model, help: "The model of this index." }];
  const known = options.some((m) => own(m.name) === side.model);
  const input = el("input", { type: "text", class: "mono", spellcheck: "false", autocapitalize: "off", autocomplete: "off", placeholder: "bm25(k1=1.2, b=0.75)", "aria-label": "A model as an expression", value: known ? "" : side.model });
  const form = el("form.expression", {}, el("label", {}, "Or an expression", input), el("button.button", { type: "submit" }, "Use"));
  form.addEventListener("submit", (e) => { e.preventDefault(); set({ model: own(input.value.trim()) }); });
  const radios = el("div", { role: "radiogroup", "aria-label": "Model" }, options.map((m) =>
    el("button.option", { type: "button", role: "radio", "aria-checked": String(own(m.name) === side.model), onclick: () => set({ model: own(m.name) }) },
      el("span.mono", {}, cut(m.name, 80)), m.help ? el("small", {}, m.help) : null)));
  radios.addEventListener("keydown", (e) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (!step) return;
    e.preventDefault();
    const all = [...radios.children];
    all[(all.indexOf(document.activeElement) + step + all.length) % all.length].focus();
  });
  pop.replaceChildren(radios, form, ...segments(info, side, set));
}

function segments(info, side, set) {
  const choice = (name, title, values) => values.length && el("div.segment", { role: "group", "aria-label": title }, el("span", {}, title),
    ["", ...values].map((v) => el("button", { type: "button", "aria-pressed": String(side[name] === v), onclick: () => set({ [name]: v }) }, v || (name === "combine" ? "default" : "none"))));
  return [
    choice("expand", "Query expansion", info.expanders ?? []),
    choice("rerank", "Rerank", info.rerankers ?? []),
    choice("combine", "Combine parts", (info.parts?.length ?? 0) > 1 ? ["sum", "union", "rrf"] : []),
  ].filter(Boolean);
}
